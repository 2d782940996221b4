//! What is wrong, where.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::document::Document;
use crate::api::validate::Violation;

/// Whether a finding refuses the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The object is refused.
    Error,
    /// The object is taken, and the author should look.
    Warning,
    /// Nothing is wrong in these files; it depends on what is not in them.
    Note,
}

/// Something that is wrong in a file. Displayed as `FILE:DOC kind/name: path: message`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Whether it refuses the manifest.
    pub severity: Severity,
    /// File, as it was given.
    pub file: Arc<str>,
    /// Which document of the file, from 1; 0: the file as a whole.
    pub document: usize,
    /// Line of the field, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Kind of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl Finding {
    pub(crate) fn of_file(file: &Arc<str>, severity: Severity, message: String) -> Self {
        Self {
            severity,
            file: file.clone(),
            document: 0,
            line: None,
            kind: None,
            name: None,
            path: String::new(),
            message,
        }
    }

    pub(crate) fn about(
        document: &Document,
        severity: Severity,
        path: &str,
        message: String,
    ) -> Self {
        Self {
            severity,
            file: document.file.clone(),
            document: document.index,
            line: document.line_of(path),
            kind: document.kind().map(str::to_owned),
            name: document.name().map(str::to_owned),
            path: path.to_owned(),
            message,
        }
    }

    pub(crate) fn violation(document: &Document, violation: Violation) -> Self {
        let Violation {
            severity,
            path,
            message,
        } = violation;
        Self::about(document, severity, &path, message)
    }

    /// Whether it refuses the manifest.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.document > 0 {
            write!(f, ":{}", self.document)?;
        }
        if self.kind.is_some() || self.name.is_some() {
            let kind = self.kind.as_deref().unwrap_or("?");
            let name = self.name.as_deref().unwrap_or("?");
            write!(f, " {kind}/{name}")?;
        }
        f.write_str(": ")?;
        match self.severity {
            Severity::Error => {}
            Severity::Warning => f.write_str("warning: ")?,
            Severity::Note => f.write_str("note: ")?,
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match self.line {
            Some(line) => write!(f, " (line {line})"),
            None => Ok(()),
        }
    }
}
