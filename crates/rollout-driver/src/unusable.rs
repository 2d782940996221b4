//! Which failures of the driver end its job: those where a person has to change something before any start can do better.
//!
//! Everything else may pass: the driver is started again, and each start counts against `backoffLimit` (docs/reliability.md has the table).

use std::io;

use crate::dataset::DatasetError;
use crate::download::DownloadError;
use crate::error::{DriverError, LedgerError};
use crate::output::OutputError;

/// What a person has to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// The job's spec, or the code that it names.
    Spec,
    /// The data set.
    Dataset,
    /// The output directory.
    Output,
    /// The ledger.
    Ledger,
    /// The tokenizer.
    Tokenizer,
}

impl Unusable {
    /// The reason of the job's end, a word of the API.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Spec => "ValidationFailed",
            Self::Dataset => "DatasetUnusable",
            Self::Output => "OutputUnusable",
            Self::Ledger => "LedgerUnusable",
            Self::Tokenizer => "TokenizerUnusable",
        }
    }
}

impl DriverError {
    /// What has to be changed before any start can do better; none: another start may.
    pub fn unusable(&self) -> Option<Unusable> {
        match self {
            Self::Config { .. } => Some(Unusable::Spec),
            Self::Dataset(error)
            | Self::DatasetOnClaim { source: error, .. }
            | Self::DatasetOfUrl { source: error } => dataset(error),
            Self::Download(error) => download(error),
            Self::Output(error) => output(error),
            Self::Ledger(error) => ledger(error),
            Self::Tokenizer { .. } => Some(Unusable::Tokenizer),
            Self::ReadFile { .. }
            | Self::Task { .. }
            | Self::Plugin { .. }
            | Self::NoTokenizer { .. }
            | Self::Router { .. }
            | Self::Client(_)
            | Self::Listen { .. }
            | Self::Stopped => None,
        }
    }
}

fn dataset(error: &DatasetError) -> Option<Unusable> {
    match error {
        DatasetError::Read { source, .. } if !is_lasting(source) => None,
        DatasetError::Read { .. }
        | DatasetError::Format { .. }
        | DatasetError::Empty { .. }
        | DatasetError::Slice { .. }
        | DatasetError::TooLarge { .. }
        | DatasetError::Inline { .. } => Some(Unusable::Dataset),
    }
}

fn download(error: &DownloadError) -> Option<Unusable> {
    match error {
        DownloadError::NotAUrl { .. }
        | DownloadError::Refused { .. }
        | DownloadError::TooLarge { .. }
        | DownloadError::Credentials { .. } => Some(Unusable::Dataset),
        DownloadError::NotInTime { .. }
        | DownloadError::TooSlow { .. }
        | DownloadError::Disk { .. }
        | DownloadError::NoSpace { .. } => None,
    }
}

fn output(error: &OutputError) -> Option<Unusable> {
    match error {
        OutputError::Io { source, .. } if !is_lasting(source) => None,
        OutputError::OtherDataset { .. } => Some(Unusable::Dataset),
        OutputError::Io { .. }
        | OutputError::FileInTheWay { .. }
        | OutputError::OtherJob { .. }
        | OutputError::UnknownOwner { .. }
        | OutputError::Broken { .. }
        | OutputError::Damaged { .. } => Some(Unusable::Output),
        OutputError::NoSpace { .. }
        | OutputError::Superseded { .. }
        | OutputError::Sample { .. }
        | OutputError::MissingGroup { .. }
        | OutputError::WrongCount { .. } => None,
    }
}

fn ledger(error: &LedgerError) -> Option<Unusable> {
    match error {
        LedgerError::Directory { source, .. } if !is_lasting(source) => None,
        LedgerError::Directory { .. }
        | LedgerError::NetworkFileSystem { .. }
        | LedgerError::Corrupt { .. }
        | LedgerError::OtherJob { .. }
        | LedgerError::OtherDataset { .. }
        | LedgerError::Version { .. }
        | LedgerError::Sum(_) => Some(Unusable::Ledger),
        LedgerError::NoSpace { .. }
        | LedgerError::Io { .. }
        | LedgerError::Superseded { .. }
        | LedgerError::Database { .. }
        | LedgerError::Stopped => None,
    }
}

/// Whether a file system says the same until somebody puts, moves or permits something there. Disks and networks that fail may recover.
fn is_lasting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::InvalidFilename
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn path() -> PathBuf {
        "/x".into()
    }

    fn dataset(kind: io::ErrorKind) -> DriverError {
        DriverError::DatasetOnClaim {
            claim: "c".into(),
            path: "p".into(),
            source: DatasetError::Read {
                path: path(),
                source: kind.into(),
            },
        }
    }

    fn output(kind: io::ErrorKind) -> DriverError {
        DriverError::Output(OutputError::Io {
            operation: "create",
            path: path(),
            source: kind.into(),
        })
    }

    fn directory(kind: io::ErrorKind) -> DriverError {
        DriverError::Ledger(LedgerError::Directory {
            path: path(),
            source: kind.into(),
        })
    }

    fn database(code: std::ffi::c_int) -> DriverError {
        let source = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        crate::ledger::database_error(&path(), "write", source).into()
    }

    #[test]
    fn what_only_a_person_can_change_ends_the_job() {
        let other = OutputError::OtherJob {
            directory: path(),
            owner: "a".into(),
            job: "b".into(),
        };
        let unknown = OutputError::UnknownOwner {
            directory: path(),
            example: "x".into(),
        };
        let in_the_way = OutputError::FileInTheWay {
            path: path(),
            file: path(),
        };
        let broken = OutputError::Broken {
            path: path(),
            problem: "p".into(),
        };
        let damaged = OutputError::Damaged {
            path: path(),
            problem: "p".into(),
        };
        for error in [other, unknown, in_the_way, broken, damaged] {
            let error = DriverError::Output(error);
            assert_eq!(error.unusable(), Some(Unusable::Output), "{error:?}");
        }
        let newer = LedgerError::Version {
            path: path(),
            version: 2,
            ours: 1,
        };
        let dataset_changed = LedgerError::OtherDataset { path: path() };
        let network = LedgerError::NetworkFileSystem {
            path: path(),
            kind: "NFS",
        };
        for error in [newer, dataset_changed, network] {
            let error = DriverError::Ledger(error);
            assert_eq!(error.unusable(), Some(Unusable::Ledger), "{error:?}");
        }
        for damaged in [rusqlite::ffi::SQLITE_CORRUPT, rusqlite::ffi::SQLITE_NOTADB] {
            assert_eq!(database(damaged).unusable(), Some(Unusable::Ledger));
        }
        let problem = || "p".to_owned();
        let tokenizer = DriverError::Tokenizer { problem: problem() };
        assert_eq!(tokenizer.unusable(), Some(Unusable::Tokenizer));
        let spec = DriverError::Config { problem: problem() };
        assert_eq!(spec.unusable(), Some(Unusable::Spec));
        let empty = DriverError::Dataset(DatasetError::Empty { name: "d".into() });
        assert_eq!(empty.unusable(), Some(Unusable::Dataset));
        for kind in [
            io::ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::IsADirectory,
        ] {
            assert_eq!(dataset(kind).unusable(), Some(Unusable::Dataset));
            assert_eq!(output(kind).unusable(), Some(Unusable::Output));
            assert_eq!(directory(kind).unusable(), Some(Unusable::Ledger));
        }
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        for kind in [
            io::ErrorKind::StaleNetworkFileHandle,
            io::ErrorKind::TimedOut,
            io::ErrorKind::ReadOnlyFilesystem,
            io::ErrorKind::Other,
        ] {
            assert_eq!(dataset(kind).unusable(), None);
            assert_eq!(output(kind).unusable(), None);
            assert_eq!(directory(kind).unusable(), None);
        }
        for passing in [
            rusqlite::ffi::SQLITE_FULL,
            rusqlite::ffi::SQLITE_IOERR,
            rusqlite::ffi::SQLITE_BUSY,
        ] {
            assert_eq!(database(passing).unusable(), None);
        }
        let full = OutputError::NoSpace {
            operation: "write",
            path: path(),
            source: io::ErrorKind::StorageFull.into(),
        };
        let taken_over = OutputError::Superseded {
            directory: path(),
            attempt: 1,
            owner: 2,
        };
        for error in [full, taken_over] {
            assert_eq!(DriverError::Output(error).unusable(), None);
        }
        let router = DriverError::Router {
            url: "u".into(),
            problem: "p".into(),
        };
        let problem = || "p".to_owned();
        let field = "spec.reward";
        let plugin = DriverError::Plugin {
            field,
            problem: problem(),
        };
        let files = DriverError::NoTokenizer { problem: problem() };
        let task = DriverError::Task { problem: problem() };
        for error in [router, plugin, files, task] {
            assert_eq!(error.unusable(), None, "{error:?}");
        }
    }
}
