//! Why output cannot be written or read.

use std::io;
use std::path::{Path, PathBuf};

use rollout_session::InvariantError;

/// A failed operation on an output directory. What was whole before is still whole.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The file system is full, or a quota is.
    #[error(
        "no space left to {operation} {path}: nothing of it was written; free some, the same job started again goes on where it was"
    )]
    NoSpace {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Any other failure of the file system.
    #[error("cannot {operation} {path}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is where a directory has to be.
    #[error("cannot create the directory {path}: {file} is a file; choose another place")]
    FileInTheWay {
        /// The directory.
        path: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// The directory belongs to another job.
    #[error(
        "{directory} is the output of job {owner}, not of {job}; choose another output directory"
    )]
    OtherJob {
        /// The directory.
        directory: PathBuf,
        /// Whose it is.
        owner: String,
        /// Who wanted it.
        job: String,
    },
    /// Samples of another data set are in the directory.
    #[error(
        "{directory} holds samples of another data set: what is behind dataset.url has changed since then (its sha256 was {was}, is {is}); put the data set back, or choose another output directory"
    )]
    OtherDataset {
        /// The directory.
        directory: PathBuf,
        /// Digest of the data set that the samples are of.
        was: String,
        /// Digest of ours.
        is: String,
    },
    /// The directory has output, but nothing says whose.
    #[error(
        "{directory} holds {example}, but no record of the job that wrote it; choose another output directory"
    )]
    UnknownOwner {
        /// The directory.
        directory: PathBuf,
        /// A file that is there.
        example: String,
    },
    /// A later driver of the same job writes here now.
    #[error("attempt {attempt} may no longer write to {directory}: attempt {owner} took it over")]
    Superseded {
        /// The directory.
        directory: PathBuf,
        /// Our attempt.
        attempt: u64,
        /// The attempt that writes now.
        owner: u64,
    },
    /// A file of ours does not say what it should.
    #[error("{path} cannot be used: {problem}")]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file of a finished step is not what the manifest says, and cannot be written again.
    #[error(
        "{path} is not the file that manifest.json describes: {problem}; the ledger does not have its samples any more, so put the file back, or start over in an empty output directory"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A sample that no consumer could rely on.
    #[error("sample {index} breaks an invariant")]
    Sample {
        /// Index of the sample, or its place where it has none.
        index: i64,
        /// The field and what is wrong with it.
        source: InvariantError,
    },
    /// A kept group of the step was never written as a part.
    #[error("group {group} of step {step} is not in the output: write it before the step ends")]
    MissingGroup {
        /// The step.
        step: u32,
        /// The group.
        group: u64,
    },
    /// The ledger's database does not have the groups that the ledger counts.
    #[error(
        "step {step} has {counted} kept groups, and the ledger's database lists {listed}: it was changed or removed while the driver ran; start the job again"
    )]
    WrongCount {
        /// The step.
        step: u32,
        /// Groups that the ledger counts.
        counted: u64,
        /// Groups that its database lists.
        listed: u64,
    },
}

impl OutputError {
    /// Stable name for metrics and conditions.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoSpace { .. } => "no_space",
            Self::Io { .. } => "io",
            Self::FileInTheWay { .. } => "file_in_the_way",
            Self::OtherDataset { .. } => "other_dataset",
            Self::OtherJob { .. } => "other_job",
            Self::UnknownOwner { .. } => "unknown_owner",
            Self::Superseded { .. } => "superseded",
            Self::Broken { .. } => "broken",
            Self::Damaged { .. } => "damaged",
            Self::Sample { .. } => "sample",
            Self::MissingGroup { .. } => "missing_group",
            Self::WrongCount { .. } => "wrong_count",
        }
    }

    /// An error of the file system.
    pub(super) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if is_out_of_space(&source) {
            Self::NoSpace {
                operation,
                path,
                source,
            }
        } else {
            Self::Io {
                operation,
                path,
                source,
            }
        }
    }
}

/// Whether there is no room to write: on the disk, in a quota, or below a limit on the size of files.
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
