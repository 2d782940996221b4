//! Prompt data sets: which prompt comes next, for ever, without holding the rows in memory.
//!
//! **Purpose.** [`Dataset::next_group`] hands out one prompt after another: the rows of a slice, in file order or in the order that a
//! Python trainer would shuffle them, epoch after epoch. Everything that moves lives in a [`Cursor`], which a ledger can store.
//!
//! **Input.** JSON lines: one object per line, blank lines skipped, UTF-8. Rows that came inside a manifest work the same way.
//!
//! **Guarantees.** Memory is 8 bytes per row (12 with shuffling). A row that cannot be used is an error that names file, line and
//! column: where the parser stopped, where a wrong value starts, or where the row starts that lacks a key; the cursor has moved past it, so the caller counts it and asks again. Two data sets with the same [`Dataset::fingerprint`]
//! give the same prompts for the same cursor.
//!
//! **Caveats.** Reads are short and blocking. A job whose rows are all bad gets an error each time: the caller's error budget ends it.

mod check;
mod error;
mod index;
mod place;
mod row;
mod shuffle;
mod slice;
#[cfg(test)]
mod tests;
mod unique;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub use check::CheckReport;
pub use error::{DatasetError, Location, RowError, RowProblem};
pub use row::{Keys, LabelRule, Rules};
pub use slice::{Slice, SliceError};

use error::SourceName;
use index::{RowIndex, Storage};

use crate::digest::hex;

/// Where the rows are.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A JSON lines file.
    File(PathBuf),
    /// Such a file that was fetched.
    Fetched {
        /// What errors call it.
        name: String,
        /// Where it is.
        path: PathBuf,
        /// Digest of its bytes: part of the fingerprint, since the file may be another one the next time.
        digest: String,
    },
    /// The text of such a file.
    Text {
        /// What errors call it.
        name: String,
        /// JSON lines.
        text: String,
    },
    /// Rows of a manifest.
    Inline(Vec<Value>),
}

/// Everything that decides which prompts a job sees, and in which order.
#[derive(Debug, Clone, PartialEq)]
pub struct DatasetConfig {
    /// Where the rows are.
    pub source: Source,
    /// Which keys are read and which types they may have.
    pub rules: Rules,
    /// The part of the rows that is used; `None` is all.
    pub slice: Option<Slice>,
    /// The seed of the shuffle; `None` keeps file order. Epoch `e` is shuffled with `seed + e`.
    pub shuffle_seed: Option<i64>,
    /// Samples per prompt group: how far each group moves `sample_index`.
    pub samples_per_prompt: u32,
}

/// The place in a data set. The indices grow for ever, over epochs too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cursor {
    /// Times that the data set was gone through.
    pub epoch: u64,
    /// Rows of this epoch that were handed out.
    pub offset: u64,
    /// `group_index` of the next group.
    pub group_index: i64,
    /// `index` of the next sample.
    pub sample_index: i64,
}

/// A prompt and what belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptRow {
    /// A text or a list of chat messages.
    pub prompt: Value,
    /// Ground truth; null without one.
    pub label: Value,
    /// Free-form; `tools` included when the row has them.
    pub metadata: Map<String, Value>,
    /// Tool specifications.
    pub tools: Option<Value>,
    /// Number of the row in the file, from 0, blank lines not counted.
    pub row: u64,
    /// Index of the group that this prompt makes.
    pub group_index: i64,
    /// Index of the group's first sample; its siblings follow.
    pub first_sample_index: i64,
}

/// An open data set.
#[derive(Debug)]
pub struct Dataset {
    index: RowIndex,
    name: SourceName,
    rules: Rules,
    rows: u32,
    shuffle_seed: Option<i64>,
    samples_per_prompt: u32,
    fingerprint: String,
    order: Mutex<Option<EpochOrder>>,
}

#[derive(Debug)]
struct EpochOrder {
    epoch: u64,
    order: Arc<[u32]>,
}

impl Dataset {
    /// Opens a data set and finds its rows; [`Dataset::check`] reads them.
    ///
    /// # Errors
    /// The file cannot be read, is of another format, has no row, or the slice reaches outside of it.
    pub fn open(config: &DatasetConfig) -> Result<Self, DatasetError> {
        let (name, storage) = match &config.source {
            Source::File(path) => (
                SourceName::File(path.to_string_lossy().into()),
                open_file(path)?,
            ),
            Source::Fetched { name, path, .. } => {
                (SourceName::File(name.as_str().into()), open_file(path)?)
            }
            Source::Text { name, text } => (
                SourceName::File(name.as_str().into()),
                Storage::Memory(text.clone().into_bytes()),
            ),
            Source::Inline(rows) => (SourceName::Inline, Storage::Memory(inline_lines(rows)?)),
        };
        let index = RowIndex::scan(storage, config.slice).map_err(|source| DatasetError::Read {
            path: PathBuf::from(name.to_string()),
            source,
        })?;
        let rows = selected_rows(&index, config.slice, &name)?;
        let fingerprint = fingerprint(&index, config);
        Ok(Self {
            index,
            name,
            rules: config.rules.clone(),
            rows,
            shuffle_seed: config.shuffle_seed,
            samples_per_prompt: config.samples_per_prompt,
            fingerprint,
            order: Mutex::new(None),
        })
    }

    /// Rows of one epoch. At least one.
    pub fn rows(&self) -> u64 {
        u64::from(self.rows)
    }

    /// A hash of the row boundaries and of everything in the configuration that decides which prompt comes when. A cursor from a data
    /// set with another fingerprint points somewhere else.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Where the prompt of a row is, for error messages about it.
    pub fn prompt_location(&self, row: u64) -> Location {
        let line = self.index.read(row).ok();
        let column = line.and_then(|line| row::prompt_column(&line, &self.rules));
        self.location(row, column)
    }

    fn location(&self, row: u64, column: Option<usize>) -> Location {
        Location {
            source: self.name.clone(),
            line: self.index.line(row),
            // The lines of a manifest's rows are ours: nobody could look there.
            column: column.filter(|_| self.name != SourceName::Inline),
        }
    }

    /// The next prompt. The cursor moves past the row, whether it can be used or not; group and sample indices only when it can.
    ///
    /// # Errors
    /// The row cannot be used. Ask again for the next one.
    pub fn next_group(&self, cursor: &mut Cursor) -> Result<PromptRow, RowError> {
        if cursor.offset >= self.rows() {
            cursor.epoch += 1;
            cursor.offset = 0;
        }
        let row = self.row_at(cursor.epoch, cursor.offset);
        cursor.offset += 1;
        let content = self.content(row)?;
        let group = PromptRow {
            prompt: content.prompt,
            label: content.label,
            metadata: content.metadata,
            tools: content.tools,
            row,
            group_index: cursor.group_index,
            first_sample_index: cursor.sample_index,
        };
        cursor.group_index += 1;
        cursor.sample_index += i64::from(self.samples_per_prompt);
        Ok(group)
    }

    fn row_at(&self, epoch: u64, offset: u64) -> u64 {
        let Some(seed) = self.shuffle_seed else {
            return self.index.first() + offset;
        };
        let mut cached = self.order.lock();
        let order = match &*cached {
            Some(known) if known.epoch == epoch => Arc::clone(&known.order),
            _ => {
                let order: Arc<[u32]> =
                    shuffle::permutation(self.rows, i128::from(seed) + i128::from(epoch)).into();
                *cached = Some(EpochOrder {
                    epoch,
                    order: Arc::clone(&order),
                });
                order
            }
        };
        let place = usize::try_from(offset)
            .ok()
            .and_then(|at| order.get(at))
            .copied()
            .unwrap_or(0);
        self.index.first() + u64::from(place)
    }

    fn content(&self, row: u64) -> Result<row::Content, RowError> {
        let at = |column, problem| RowError {
            location: self.location(row, column),
            problem,
        };
        let line = self
            .index
            .read(row)
            .map_err(|error| at(None, RowProblem::Read(error.to_string())))?;
        row::parse(&line, &self.rules).map_err(|bad| at(bad.column, bad.problem))
    }
}

fn open_file(path: &Path) -> Result<Storage, DatasetError> {
    const OTHER_FORMATS: [&str; 5] = ["parquet", "gz", "zst", "csv", "arrow"];
    let extension = path
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    if OTHER_FORMATS.contains(&extension.as_str()) {
        return Err(DatasetError::Format {
            path: path.to_owned(),
            extension,
        });
    }
    let unreadable = |source| DatasetError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(unreadable(std::io::ErrorKind::IsADirectory.into()));
    }
    Ok(Storage::File(file))
}

fn inline_lines(rows: &[Value]) -> Result<Vec<u8>, DatasetError> {
    let mut lines = Vec::new();
    for (position, row) in rows.iter().enumerate() {
        serde_json::to_writer(&mut lines, row)
            .map_err(|source| DatasetError::Inline { position, source })?;
        lines.push(b'\n');
    }
    Ok(lines)
}

fn selected_rows(
    index: &RowIndex,
    slice: Option<Slice>,
    name: &SourceName,
) -> Result<u32, DatasetError> {
    let rows = index.scanned();
    if rows == 0 {
        return Err(DatasetError::Empty {
            name: name.to_string(),
        });
    }
    let slice = slice.unwrap_or_default();
    if slice.start >= rows || slice.end.is_some_and(|end| end > rows) {
        return Err(DatasetError::Slice {
            name: name.to_string(),
            slice,
            rows,
        });
    }
    u32::try_from(rows - slice.start).map_err(|_| DatasetError::TooLarge {
        name: name.to_string(),
        rows,
    })
}

fn fingerprint(index: &RowIndex, config: &DatasetConfig) -> String {
    let mut hash = Sha256::new();
    for start in index.starts() {
        hash.update(start.to_le_bytes());
    }
    let DatasetConfig {
        source,
        rules,
        slice,
        shuffle_seed,
        samples_per_prompt,
    } = config;
    if let Source::Fetched { digest, .. } = source {
        hash.update(digest);
    }
    hash.update(format!(
        "{rules:?} {slice:?} {shuffle_seed:?} {samples_per_prompt}"
    ));
    hex(hash)
}
