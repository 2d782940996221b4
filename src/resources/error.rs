//! Why a spec has no objects.

/// A spec that is valid as such and cannot run on a cluster: for the condition `Stalled`; only an edit cures it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Something that is not built yet.
    #[error("{path}: not built yet: {what}")]
    NotSupported {
        /// Path of the field.
        path: String,
        /// What is missing, and what to write instead.
        what: String,
    },
    /// Something that cannot work.
    #[error("{path}: {problem}")]
    Invalid {
        /// Path of the field.
        path: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
}

impl Refusal {
    pub(super) fn not_supported(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self::NotSupported {
            path: path.into(),
            what: what.into(),
        }
    }

    pub(super) fn invalid(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid {
            path: path.into(),
            problem: problem.into(),
        }
    }

    /// The reason of the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotSupported { .. } => crate::api::conditions::reasons::NOT_SUPPORTED,
            Self::Invalid { .. } => crate::api::conditions::reasons::INVALID_SPEC,
        }
    }
}
