//! Failures that end the driver. What happens to single samples or groups is never one of these.

use std::path::PathBuf;

use rollout_engine::BookError;

use crate::dataset::DatasetError;
use crate::download::DownloadError;
use crate::output::OutputError;

/// A failure that ends the driver.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The configuration cannot be used.
    #[error("configuration: {problem}")]
    Config {
        /// What is wrong, with the field.
        problem: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The data set cannot be used.
    #[error(transparent)]
    Dataset(DatasetError),
    /// The data set on a volume cannot be used.
    #[error("spec.dataset.persistentVolumeClaim: {path} on the claim {claim}")]
    DatasetOnClaim {
        /// The claim.
        claim: String,
        /// The file in it.
        path: String,
        /// Why.
        source: DatasetError,
    },
    /// The data set behind a URL did not come.
    #[error("spec.dataset.url")]
    Download(#[from] DownloadError),
    /// The data set behind a URL cannot be used.
    #[error("spec.dataset.url")]
    DatasetOfUrl {
        /// Why.
        source: DatasetError,
    },
    /// The driver was stopped before it had what it needs: no failure, a later start continues.
    #[error("stopped before the data set was there")]
    Stopped,
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The output cannot be written or read.
    #[error("output: {}", chain(.0))]
    Output(OutputError),
    /// A part of this process ended without an answer.
    #[error("the driver itself: {problem}")]
    Task {
        /// What is known.
        problem: String,
    },
    /// A plug-in could not be asked, or failed in a way that may pass.
    #[error("{field}: {problem}")]
    Plugin {
        /// The field that names it.
        field: &'static str,
        /// Why.
        problem: String,
    },
    /// The router does not answer, or has nothing to work with.
    #[error("the router at {url}: {problem}")]
    Router {
        /// Its address.
        url: String,
        /// Why.
        problem: String,
    },
    /// The tokenizer cannot be used.
    #[error("tokenizer: {problem}")]
    Tokenizer {
        /// Why.
        problem: String,
    },
    /// The tokenizer's files did not come.
    #[error("tokenizer: {problem}")]
    NoTokenizer {
        /// Why.
        problem: String,
    },
    /// An HTTP client cannot be built.
    #[error("http client")]
    Client(#[source] reqwest::Error),
    /// The status server cannot listen.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// A failure of the ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The directory cannot be made or read.
    #[error("ledger directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file system does not have the locks that the database needs.
    #[error(
        "the ledger cannot be on {} ({kind}): SQLite's write-ahead log needs a local file system",
        path.display()
    )]
    NetworkFileSystem {
        /// The directory.
        path: PathBuf,
        /// The file system.
        kind: &'static str,
    },
    /// No space is left.
    #[error("no space left for the ledger in {}: free some, the next start continues", path.display())]
    NoSpace {
        /// The directory.
        path: PathBuf,
    },
    /// The file system refuses to read or to write.
    #[error(
        "the ledger in {} cannot be read or written: a full disk or quota, a limit on the size of files, or a disk that fails; the next start continues",
        path.display()
    )]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the database says.
        source: rusqlite::Error,
    },
    /// Not a database, or a damaged one.
    #[error("the ledger {} is damaged: {problem}; move it away to begin anew", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What the database says.
        problem: String,
    },
    /// It belongs to another job.
    #[error(
        "the ledger {} belongs to job {owner}, not to {job}: choose another place for the ledger",
        path.display()
    )]
    OtherJob {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: String,
        /// Who we are.
        job: String,
    },
    /// It was made from another data set.
    #[error(
        "the ledger {} was begun with another data set, and its cursor points somewhere else: put the data set back, or move the file away to begin anew",
        path.display()
    )]
    OtherDataset {
        /// The file.
        path: PathBuf,
    },
    /// A later attempt or another process has taken it over.
    #[error("attempt {attempt} writes no more: attempt {newer} has taken over the ledger")]
    Superseded {
        /// Ours.
        attempt: u64,
        /// The one that has it.
        newer: u64,
    },
    /// Written by another version.
    #[error(
        "the ledger {} has version {version}, this driver reads version {ours}: use the version of the operator that wrote it, or move the file away to begin anew",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What it has.
        version: i64,
        /// What we read.
        ours: i64,
    },
    /// Its rows contradict each other.
    #[error("the ledger does not sum up: {0}; move it away to begin anew from the output")]
    Sum(#[from] BookError),
    /// Anything else that the database says.
    #[error("ledger: {operation}")]
    Database {
        /// What was done.
        operation: &'static str,
        /// What the database says.
        source: rusqlite::Error,
    },
    /// The writer has stopped after an earlier failure.
    #[error("the ledger's writer has stopped")]
    Stopped,
}
