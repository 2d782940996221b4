//! Failures of a call: whose fault, and whether the request can have reached the server.

use std::time::Duration;

use crate::wire::{ErrorBody, ReplyProblem};

/// Whose fault a failed call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request is wrong; sending it again changes nothing.
    Request,
    /// The server is gone, overloaded, broken or silent.
    Server,
    /// The rollout was closed: nothing is wrong, nothing more will be answered.
    Closed,
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection: the request was not sent.
    #[error("cannot connect to {url}")]
    NotReached {
        /// What was called.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The connection broke after the request may have been read.
    #[error("the connection to {url} broke before the reply was whole")]
    Broken {
        /// What was called.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// No whole reply within the deadline.
    #[error("no reply from {url} within {} s", within.as_secs_f64())]
    TimedOut {
        /// What was called.
        url: String,
        /// The deadline.
        within: Duration,
    },
    /// An error status.
    #[error("{url} answered {status}: {}", body.message)]
    Status {
        /// What was called.
        url: String,
        /// The status.
        status: u16,
        /// Its body.
        body: ErrorBody,
    },
    /// A reply that is not what it should be.
    #[error("the reply of {url} is not usable: {problem}")]
    BadReply {
        /// What was called.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl ClientError {
    /// A reply that cannot be recorded.
    pub fn bad_reply(url: &str, problem: &ReplyProblem) -> Self {
        Self::BadReply {
            url: url.to_owned(),
            problem: problem.to_string(),
        }
    }

    /// Whose fault it is. 408, 425 and 429 are the server's load, 401 and 403 its operation's (a wrong key); none is a wrong request.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Status { body, status, .. } => match status {
                410 if body.code.as_deref() == Some("rollout_closed") => Fault::Closed,
                401 | 403 | 408 | 425 | 429 => Fault::Server,
                400..=499 => Fault::Request,
                _ => Fault::Server,
            },
            _ => Fault::Server,
        }
    }

    /// Whether the server cannot have seen the request.
    pub fn is_unsent(&self) -> bool {
        matches!(self, Self::NotReached { .. })
    }

    /// Stable name, for counters.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotReached { .. } => "not_reached",
            Self::Broken { .. } => "broken_connection",
            Self::TimedOut { .. } => "timed_out",
            Self::Status { status, .. } => match status {
                401 | 403 => "unauthorized",
                404 => "not_found",
                410 => "closed",
                429 => "overloaded",
                400..=499 => "refused",
                502 => "bad_gateway",
                503 => "unavailable",
                _ => "server_error",
            },
            Self::BadReply { .. } => "bad_reply",
        }
    }

    /// The status that was answered.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}
