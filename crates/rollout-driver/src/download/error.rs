//! Why a file did not come.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A file that did not come. Names in it are URLs without what could be a secret.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The text is no URL that can be asked.
    #[error("{url}: {problem}")]
    NotAUrl {
        /// The text, without its query.
        url: String,
        /// Why not.
        problem: String,
    },
    /// Whoever answers does not give the file, and asking again would not change that.
    #[error("{url} {problem}")]
    Refused {
        /// Who was asked.
        url: String,
        /// What it says, and what to do.
        problem: String,
    },
    /// It is larger than anything that is taken for a data set.
    #[error("{url} has more than {limit} bytes: use a persistentVolumeClaim")]
    TooLarge {
        /// Who was asked.
        url: String,
        /// The limit.
        limit: u64,
    },
    /// It did not come in spite of many tries.
    #[error("{url} did not come: no further byte within {} s; {have} bytes are here and kept; at last it {problem}", patience.as_secs_f64())]
    NotInTime {
        /// Who was asked.
        url: String,
        /// How long nothing came.
        patience: Duration,
        /// What has come.
        have: u64,
        /// What was wrong with the last try.
        problem: String,
    },
    /// It comes, and too slowly.
    #[error("{url} did not come within {} s: {have} bytes are here and kept", limit.as_secs_f64())]
    TooSlow {
        /// Who was asked.
        url: String,
        /// How long it had.
        limit: Duration,
        /// What has come.
        have: u64,
    },
    /// It cannot be written.
    #[error("cannot write {}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No space is left for it.
    #[error("no space left for {}: free some, or make the ledger's volume larger; the next start continues", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
    },
    /// The credentials cannot be read or used.
    #[error("the credentials of url: {problem}")]
    Credentials {
        /// Why not.
        problem: String,
    },
}

impl DownloadError {
    /// Stable name for metrics and conditions.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotAUrl { .. } => "not_a_url",
            Self::Refused { .. } => "refused",
            Self::TooLarge { .. } => "too_large",
            Self::NotInTime { .. } => "not_in_time",
            Self::TooSlow { .. } => "too_slow",
            Self::Disk { .. } => "disk",
            Self::NoSpace { .. } => "no_space",
            Self::Credentials { .. } => "credentials",
        }
    }
}
