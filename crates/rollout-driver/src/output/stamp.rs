//! Whose directory this is, and who may write to it.
//!
//! The stamp names the job by its uid, the attempt, and the one driver process that opened the directory last. Every file asks
//! [`Stamp::still_mine`] before it appears, so that a late writer of an older attempt is refused. It needs no lock, so
//! it works on network file systems too; between the question and the rename there is a moment without protection, in which an older attempt can
//! only let a file of the same job appear.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::OutputError;
use super::layout;
use super::whole;

const VERSION: u32 = 1;

/// The job that an output is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStamp {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: what tells two jobs of one name apart.
    pub uid: String,
    /// The attempt, from 1.
    pub attempt: u64,
}

impl JobStamp {
    fn described(&self) -> String {
        format!("{}/{} (uid {})", self.namespace, self.name, self.uid)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    version: u32,
    job: JobStamp,
    /// Digest of the data set that the samples are of, when it was fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dataset: Option<String>,
    writer: String,
}

/// Our claim on a directory.
#[derive(Debug)]
pub(super) struct Stamp {
    directory: PathBuf,
    content: Content,
}

impl Stamp {
    /// Claims a directory for `job` with this data set; `writer` tells this process from all others.
    pub(super) fn claim(
        directory: &Path,
        job: &JobStamp,
        dataset: Option<String>,
        writer: String,
    ) -> Result<Self, OutputError> {
        match read(directory)? {
            Some(owner) if owner.job.uid != job.uid => {
                return Err(OutputError::OtherJob {
                    directory: directory.to_owned(),
                    owner: owner.job.described(),
                    job: job.described(),
                });
            }
            Some(owner) if owner.job.attempt > job.attempt => {
                return Err(superseded(directory, job.attempt, owner.job.attempt));
            }
            Some(owner) => refuse_other_dataset(directory, owner.dataset, dataset.as_ref())?,
            None => refuse_unknown_output(directory)?,
        }
        let stamp = Self {
            directory: directory.to_owned(),
            content: Content {
                version: VERSION,
                job: job.clone(),
                dataset,
                writer,
            },
        };
        stamp.write()?;
        Ok(stamp)
    }

    /// The job that claimed a directory; `None` for a directory of nobody.
    pub(super) fn owner(directory: &Path) -> Result<Option<JobStamp>, OutputError> {
        Ok(read(directory)?.map(|owner| owner.job))
    }

    pub(super) fn job(&self) -> &JobStamp {
        &self.content.job
    }

    /// Refuses when another driver claimed the directory since.
    pub(super) fn still_mine(&self) -> Result<(), OutputError> {
        match read(&self.directory)? {
            Some(owner) if owner == self.content => Ok(()),
            Some(owner) if owner.job.uid != self.content.job.uid => Err(OutputError::OtherJob {
                directory: self.directory.clone(),
                owner: owner.job.described(),
                job: self.content.job.described(),
            }),
            Some(owner) => Err(superseded(
                &self.directory,
                self.content.job.attempt,
                owner.job.attempt,
            )),
            None => Err(OutputError::Broken {
                path: layout::stamp(&self.directory),
                problem: "it was removed while a driver writes here".to_owned(),
            }),
        }
    }

    fn write(&self) -> Result<(), OutputError> {
        let path = layout::stamp(&self.directory);
        let fill = |sink: &mut whole::Sink| {
            serde_json::to_writer(&mut *sink, &self.content)
                .map_err(io::Error::from)
                .and_then(|()| sink.write_all(b"\n"))
                .map_err(|source| OutputError::io("write", &path, source))
        };
        whole::write(&path, fill, || Ok(())).map(|_| ())
    }
}

fn superseded(directory: &Path, attempt: u64, owner: u64) -> OutputError {
    OutputError::Superseded {
        directory: directory.to_owned(),
        attempt,
        owner,
    }
}

fn read(directory: &Path) -> Result<Option<Content>, OutputError> {
    let path = layout::stamp(directory);
    let Some(text) = whole::read(&path)? else {
        return Ok(None);
    };
    let broken = |problem: String| OutputError::Broken {
        path: path.clone(),
        problem,
    };
    let content: Content =
        serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
    if content.version != VERSION {
        return Err(broken(format!(
            "it has version {}, expected {VERSION}",
            content.version
        )));
    }
    Ok(Some(content))
}

/// What is behind a URL may have changed since an earlier attempt; without samples that does no harm.
fn refuse_other_dataset(
    directory: &Path,
    was: Option<String>,
    is: Option<&String>,
) -> Result<(), OutputError> {
    let (Some(was), Some(is)) = (was, is) else {
        return Ok(());
    };
    if was == *is {
        return Ok(());
    }
    let is_begun = !whole::list(&layout::all_parts(directory))?.is_empty();
    let names = whole::list(directory)?;
    if !is_begun && !names.iter().any(|name| layout::is_output(name)) {
        return Ok(());
    }
    Err(OutputError::OtherDataset {
        directory: directory.to_owned(),
        was,
        is: is.clone(),
    })
}

/// Samples without a stamp are somebody's: never written over.
fn refuse_unknown_output(directory: &Path) -> Result<(), OutputError> {
    let names = whole::list(directory)?;
    match names.into_iter().find(|name| layout::is_output(name)) {
        Some(example) => Err(OutputError::UnknownOwner {
            directory: directory.to_owned(),
            example,
        }),
        None => Ok(()),
    }
}
