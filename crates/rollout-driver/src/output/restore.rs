//! Are the files of finished steps still what the manifest says, and if not, can they be written again?
//!
//! Asked at every start: a finished step is never generated again, so a file that somebody deleted or cut would stay missing in silence.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::OutputError;
use super::manifest::FileEntry;
use super::writer::Writer;
use super::{rows, whole};
use crate::digest::hex;

/// Which of the step's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The kept samples.
    Samples,
    /// What was generated and not kept.
    Extra,
}

/// A file that is not what the manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The step.
    pub step: u32,
    /// Which file of it.
    pub part: Part,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: String,
}

impl From<Damage> for OutputError {
    fn from(damage: Damage) -> Self {
        Self::Damaged {
            path: damage.path,
            problem: damage.problem,
        }
    }
}

impl Writer {
    /// Files of finished steps that are not what the manifest says. Reads all of them.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn damages(&self) -> Result<Vec<Damage>, OutputError> {
        let mut damages = Vec::new();
        for entry in &self.manifest().steps {
            let files = [
                (Part::Samples, Some(&entry.samples)),
                (Part::Extra, entry.extra.as_ref()),
            ];
            for (part, file) in files {
                let Some(file) = file else { continue };
                let path = self.directory().join(&file.file);
                if let Some(problem) = difference(&path, file)? {
                    damages.push(Damage {
                        step: entry.step,
                        part,
                        path,
                        problem,
                    });
                }
            }
        }
        Ok(damages)
    }

    /// Writes the samples of a finished step again from the rows of its kept groups, in any order.
    ///
    /// # Errors
    /// The rows do not give the file that the manifest describes, or it cannot be written: then nothing has changed.
    pub fn restore(&self, damage: Damage, groups: &[Vec<u8>]) -> Result<(), OutputError> {
        let manifest = self.manifest();
        let Some(entry) = manifest.step(damage.step) else {
            return Err(damage.into());
        };
        let mut groups: Vec<&[u8]> = groups.iter().map(Vec::as_slice).collect();
        groups.sort_by_cached_key(|rows| rows::first_index(rows));
        let mut hash = Sha256::new();
        for rows in &groups {
            hash.update(rows);
        }
        if damage.part != Part::Samples || hex(hash) != entry.samples.sha256 {
            return Err(damage.into());
        }
        let path = &damage.path;
        let fill = |sink: &mut whole::Sink| {
            for rows in &groups {
                sink.write_all(rows)
                    .map_err(|source| OutputError::io("write", path, source))?;
            }
            Ok(())
        };
        whole::write(path, fill, || self.still_mine()).map(|_| ())
    }
}

/// What distinguishes a file from its entry; `None` for nothing.
fn difference(path: &Path, entry: &FileEntry) -> Result<Option<String>, OutputError> {
    let failed = |source| OutputError::io("read", path, source);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some("it is missing".to_owned()));
        }
        Err(error) => return Err(failed(error)),
    };
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes != entry.bytes {
        return Ok(Some(format!(
            "it has {bytes} bytes, expected {}",
            entry.bytes
        )));
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).map_err(failed)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
    }
    Ok((hex(hash) != entry.sha256).then(|| "its content has changed".to_owned()))
}
