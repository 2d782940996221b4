//! Why a call of the plug-in host has no result.

use std::path::PathBuf;
use std::time::Duration;

/// A failed call. The text names the function, so that it can be shown as it is.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// The function, or the host on its behalf, answered with an error.
    #[error("{function}: {kind}: {message}")]
    Raised {
        /// Path of the function.
        function: String,
        /// Class of the exception.
        kind: String,
        /// Its text.
        message: String,
        /// Its traceback, for the log.
        traceback: Option<String>,
    },
    /// No answer in time. The call was cancelled by closing its connection.
    #[error("{function}: no answer from the plug-in host within {} s", limit.as_secs_f64())]
    TimedOut {
        /// Path of the function.
        function: String,
        /// The deadline of the call.
        limit: Duration,
    },
    /// Nobody listened on the socket until the deadline.
    #[error("{function}: cannot reach the plug-in host at {socket} within {} s", limit.as_secs_f64())]
    Unreachable {
        /// Path of the function.
        function: String,
        /// The socket.
        socket: PathBuf,
        /// The deadline of the call.
        limit: Duration,
        /// What the last attempt said.
        source: std::io::Error,
    },
    /// The host ended in the middle of this call, and again when it was repeated.
    #[error("{function}: the plug-in host ended during the call, {calls} times")]
    Lost {
        /// Path of the function.
        function: String,
        /// How often the call was sent.
        calls: u32,
    },
    /// The answer is not one of the protocol.
    #[error("{function}: the plug-in host answered {problem}")]
    Protocol {
        /// Path of the function.
        function: String,
        /// What it answered.
        problem: String,
    },
    /// The request is longer than the protocol allows.
    #[error(
        "{function}: the request has {bytes} bytes, a line of the plug-in host's protocol at most {limit}"
    )]
    TooLarge {
        /// Path of the function.
        function: String,
        /// Its length.
        bytes: usize,
        /// The longest line.
        limit: usize,
    },
}

/// Exceptions that say of a function that it cannot be called at all: not there, not callable like this, or not for this.
const UNUSABLE: [&str; 4] = [
    "ImportError",
    "ModuleNotFoundError",
    "NotSupported",
    "TypeError",
];

impl PluginError {
    /// Whether the function hardly ever can be called: the next call will say the same.
    pub fn is_unusable(&self) -> bool {
        matches!(self, Self::Raised { kind, .. } if UNUSABLE.contains(&kind.as_str()))
    }

    /// Stable name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Raised { .. } => "raised",
            Self::TimedOut { .. } => "timed_out",
            Self::Unreachable { .. } => "unreachable",
            Self::Lost { .. } => "lost",
            Self::Protocol { .. } => "protocol",
            Self::TooLarge { .. } => "too_large",
        }
    }
}
