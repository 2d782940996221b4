//! What can be wrong with a data set, and where.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::slice::Slice;

/// Where a row is: file and line as an editor counts them, and the column in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub(super) source: SourceName,
    /// Line in the file, or place in the manifest's list, from 1.
    pub line: u64,
    /// Column in bytes, from 1: where the parser stopped, or where the value starts that cannot be used. `None` for a row of a manifest,
    /// and for one that cannot be read.
    pub column: Option<usize>,
}

/// What errors call a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SourceName {
    File(Arc<str>),
    Inline,
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Inline => f.write_str("dataset.inline"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            SourceName::File(_) => write!(f, "{}:{}", self.source, self.line)?,
            SourceName::Inline => write!(f, "{}[{}]", self.source, self.line - 1)?,
        }
        self.column.map_or(Ok(()), |column| write!(f, ":{column}"))
    }
}

/// A row that cannot be used. The next row can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {problem}")]
pub struct RowError {
    /// File, line and column.
    pub location: Location,
    /// What is wrong.
    pub problem: RowProblem,
}

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowProblem {
    /// The line is not UTF-8.
    #[error("invalid UTF-8")]
    Encoding,
    /// The line is not JSON.
    #[error("invalid JSON: {0}; a row is one JSON object on one line")]
    Json(String),
    /// An object of the row has a key twice.
    #[error("the key `{key}` is here for the second time; remove one of the two")]
    KeyTwice {
        /// The key.
        key: String,
    },
    /// The line is JSON, but not an object.
    #[error("the row is {found}, expected an object")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
    /// A key that the job names is not there.
    #[error("the key `{key}` is missing; the row has {present}")]
    MissingKey {
        /// The key.
        key: String,
        /// The keys that are there.
        present: String,
    },
    /// A value of a type that the job cannot use.
    #[error("`{field}` is {found}, expected {expected}")]
    WrongType {
        /// Path of the value inside the row.
        field: String,
        /// What it is.
        found: &'static str,
        /// What to write instead.
        expected: &'static str,
    },
    /// A text prompt in a job whose agents need messages.
    #[error(
        "`{field}` is a string; agents send the prompt as chat messages, so write a list: [{{\"role\": \"user\", \"content\": \"...\"}}]"
    )]
    TextPrompt {
        /// Path of the prompt inside the row.
        field: String,
    },
    /// The row cannot be read.
    #[error("cannot read the row: {0}")]
    Read(String),
}

impl RowProblem {
    /// Stable name for counters.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Encoding => "encoding",
            Self::Json(_) => "json",
            Self::KeyTwice { .. } => "key_twice",
            Self::NotAnObject { .. } => "not_an_object",
            Self::MissingKey { .. } => "missing_key",
            Self::WrongType { .. } => "wrong_type",
            Self::TextPrompt { .. } => "text_prompt",
            Self::Read(_) => "read",
        }
    }
}

/// A data set that cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The file cannot be opened or read.
    #[error("cannot read the data set {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file's extension names a format that is not built.
    #[error("the data set {path} is a {extension} file; only JSON lines (.jsonl) are supported")]
    Format {
        /// The file.
        path: PathBuf,
        /// Its extension.
        extension: String,
    },
    /// No row at all.
    #[error("the data set {name} is empty: it has no rows")]
    Empty {
        /// What errors call the data set.
        name: String,
    },
    /// The slice reaches outside the file.
    #[error("the slice {slice} is outside the data set {name} of {rows} rows")]
    Slice {
        /// What errors call the data set.
        name: String,
        /// The slice.
        slice: Slice,
        /// Rows of the file.
        rows: u64,
    },
    /// More rows than an epoch can shuffle.
    #[error("the data set {name} has {rows} rows, the limit is {}", u32::MAX)]
    TooLarge {
        /// What errors call the data set.
        name: String,
        /// Rows of the file.
        rows: u64,
    },
    /// A row of a manifest cannot be written as JSON.
    #[error("cannot read dataset.inline[{position}]")]
    Inline {
        /// Place in the list, from 0.
        position: usize,
        /// Why not.
        source: serde_json::Error,
    },
}

impl DatasetError {
    /// Stable name for metrics and conditions.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Format { .. } => "format",
            Self::Empty { .. } => "empty",
            Self::Slice { .. } => "slice",
            Self::TooLarge { .. } => "too_large",
            Self::Inline { .. } => "inline",
        }
    }
}
