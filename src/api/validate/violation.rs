//! One thing that is wrong with one object.

use std::fmt;

use serde::Serialize;

use crate::api::manifest::Severity;

/// Something that is wrong with an object. Displayed as `path: message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Whether it refuses the object.
    pub severity: Severity,
    /// Path of the field; empty: the object as a whole.
    pub path: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl Violation {
    pub(crate) fn error(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            path: path.into(),
            message: message.into(),
        }
    }

    pub(crate) fn warning(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            path: path.into(),
            message: message.into(),
        }
    }

    /// Whether it refuses the object.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}
