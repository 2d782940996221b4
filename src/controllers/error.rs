//! What can go wrong between the operator and the API server, by what helps against it.

use std::time::Duration;

use kube::core::Status;

/// What a failed call or reconcile means for the object, and for when it is tried again. Its label is stable: it is in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Somebody changed the object first, or the last one of its name is still leaving: look again.
    Conflict,
    /// The API server will never take what we sent: only an edit, or another version of the operator, cures it.
    Invalid,
    /// A quota, an admission policy or missing rights: retried slowly, its words are shown.
    Forbidden,
    /// What the call was about, or its namespace, is not there.
    NotFound,
    /// The API server, or the way to it, is unwell.
    Transient,
    /// An object of the wanted name belongs to somebody else.
    Foreign,
    /// A defect of ours: a panic, or a reconcile without an end.
    Internal,
}

impl Class {
    /// The word in metrics and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Transient => "transient",
            Self::Foreign => "foreign",
            Self::Internal => "internal",
        }
    }

    /// Whether trying again without an edit is of no use.
    pub fn needs_an_edit(self) -> bool {
        self == Self::Invalid
    }

    /// The class of an error of the client.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => Self::Internal,
            _ => Self::Transient,
        }
    }

    fn of_status(status: &Status) -> Self {
        match status.code {
            409 => Self::Conflict,
            400 | 405 | 406 | 413 | 415 | 422 => Self::Invalid,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            500 if is_untyped_patch(&status.message) => Self::Invalid,
            _ => Self::Transient,
        }
    }
}

/// An apply with a field that the API server does not know, or with two list entries of one key, is answered with the code of a server
/// that is unwell (seen on Kubernetes 1.37); only the words tell.
fn is_untyped_patch(message: &str) -> bool {
    message.contains("failed to create typed patch object")
}

/// What went wrong, with the object that it was about.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a call, or could not be reached.
    #[error("cannot {verb} {object}: {}", words(source))]
    Call {
        /// What was tried.
        verb: &'static str,
        /// Kind, namespace and name.
        object: String,
        /// Its cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time. The call may have been carried out.
    #[error("cannot {verb} {object}: no answer from the API server in {} s", limit.as_secs())]
    NoAnswer {
        /// What was tried.
        verb: &'static str,
        /// Kind, namespace and name.
        object: String,
        /// How long we waited.
        limit: Duration,
    },
    /// An object of the wanted name is somebody else's; it is left alone.
    #[error(
        "{object} exists already and belongs to {owner}: delete it, or give this object another name"
    )]
    Foreign {
        /// Kind, namespace and name.
        object: String,
        /// Whose it is.
        owner: String,
    },
    /// The last object of that name is still being deleted.
    #[error("{object} is still being deleted")]
    Leaving {
        /// Kind, namespace and name.
        object: String,
    },
    /// An object of ours lacks what a call needs.
    #[error("cannot send an object without {what}")]
    Incomplete {
        /// The missing field.
        what: &'static str,
    },
    /// This process does not lead, or no longer.
    #[error("cannot {verb} {object}: this controller is not the leader")]
    NotLeading {
        /// What was tried.
        verb: &'static str,
        /// Kind, namespace and name.
        object: String,
    },
    /// Another controller leads now, or the lease could not be renewed in time.
    #[error("the lease {lease} is lost: {reason}")]
    LeaseLost {
        /// Namespace and name.
        lease: String,
        /// How we know.
        reason: String,
    },
    /// A reconcile panicked.
    #[error("the reconcile panicked: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
    /// A reconcile did not end.
    #[error("the reconcile took longer than {} s", limit.as_secs())]
    Overran {
        /// How long it may take.
        limit: Duration,
    },
}

impl Error {
    pub(crate) fn call(verb: &'static str, object: &str, source: kube::Error) -> Self {
        Self::Call {
            verb,
            object: object.to_owned(),
            source: Box::new(source),
        }
    }

    /// What helps against it.
    pub fn class(&self) -> Class {
        match self {
            Self::Call { source, .. } => Class::of(source),
            Self::NoAnswer { .. } | Self::NotLeading { .. } | Self::LeaseLost { .. } => {
                Class::Transient
            }
            Self::Foreign { .. } => Class::Foreign,
            Self::Leaving { .. } => Class::Conflict,
            Self::Incomplete { .. } | Self::Panicked { .. } | Self::Overran { .. } => {
                Class::Internal
            }
        }
    }
}

/// The words of the API server alone: the client's own text repeats the whole answer.
pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("{} {}", status.code, status.reason),
        other => other.to_string(),
    }
}
