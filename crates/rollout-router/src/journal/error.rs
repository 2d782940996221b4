//! What can go wrong with a journal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::ErrorCode;

use crate::id::HexId;

/// Why the journal cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The directory or the file cannot be used.
    #[error("journal {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is no room.
    #[error("journal {path}: no space is left, on the disk or within the journal's limit")]
    NoSpace {
        /// The file.
        path: PathBuf,
    },
    /// Another process has it.
    #[error("journal {path} is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Written by another version.
    #[error("journal {path} has version {found}, this router writes version {ours}")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        ours: i64,
    },
    /// Anything else that SQLite says.
    #[error("journal {path}: {source}")]
    Database {
        /// The file.
        path: PathBuf,
        /// What it says.
        source: rusqlite::Error,
    },
    /// An entry of a session that is not in the journal.
    #[error("session {} is not in the journal", session.short())]
    NoSession {
        /// The session.
        session: HexId,
    },
    /// The same turn or session again.
    #[error("session {}: {what} is in the journal already", session.short())]
    Twice {
        /// The session.
        session: HexId,
        /// What comes again.
        what: String,
    },
    /// A turn of the session was lost before.
    #[error("session {} is not recorded any more: {reason}", session.short())]
    Unrecorded {
        /// The session.
        session: HexId,
        /// Why its turn was lost.
        reason: String,
    },
    /// More waits to be written than may wait.
    #[error("the journal is behind: {bytes} bytes wait to be written")]
    Behind {
        /// Bytes that wait.
        bytes: usize,
    },
    /// Not written in time.
    #[error("the journal did not write within {} s", within.as_secs_f64())]
    Slow {
        /// The time that was given.
        within: Duration,
    },
    /// The journal was closed, or its thread is gone.
    #[error("the journal has ended")]
    Ended,
}

impl JournalError {
    pub(super) fn file(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_owned();
        if source.kind() == std::io::ErrorKind::StorageFull {
            return Self::NoSpace { path };
        }
        Self::File { path, source }
    }

    /// Sorts what SQLite says into what a person can act on.
    pub(super) fn database(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::NoSpace { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse { path },
            _ => Self::Database { path, source },
        }
    }
}
