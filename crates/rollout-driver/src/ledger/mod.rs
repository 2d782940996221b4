//! The ledger: what survives `kill -9`.
//!
//! **Purpose.** SQLite in WAL mode holds takes, queues, the cursor, rungs, the samples of kept groups until the output has a later step,
//! partial samples, and open sessions. One thread writes; what arrives while it commits goes into the next transaction (group
//! commit). [`Ledger::submit`] never blocks; its number comes back through the callback once everything up to it is durable.
//!
//! **Guarantees.** Operations that are submitted together are committed together. Every transaction checks that this process still
//! owns the ledger: the attempt is the epoch, so a late writer of an older attempt is refused ([`LedgerError::Superseded`]).
//!
//! **Caveats.** Never on a network file system: checked at the start.

#[cfg(test)]
mod full;
mod load;
mod open;
mod schema;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rollout_engine::{Book, GroupIndex, Record, Step, TakeId};
use rusqlite::Connection;

use crate::config::JobIdentity;
use crate::error::LedgerError;

pub use load::{KeptGroup, StoredSlot};
pub use open::Recovered;

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A decision of the batch loop.
    Record(Record),
    /// The samples of a kept group: one JSON object per line.
    Kept {
        /// The take.
        take: TakeId,
        /// Its step.
        step: Step,
        /// Its group.
        group: GroupIndex,
        /// The lines.
        rows: Arc<[u8]>,
    },
    /// Samples that wait for the next take of their group.
    Partials {
        /// The group.
        group: GroupIndex,
        /// Per slot that has any.
        slots: Vec<StoredSlot>,
    },
    /// The group needs its stored samples no more.
    ForgetPartials {
        /// The group.
        group: GroupIndex,
    },
    /// The output has the step: kept groups of the steps before it are forgotten.
    StepInOutput {
        /// The step.
        step: Step,
    },
    /// A session was created.
    SessionOpened {
        /// Its id.
        id: String,
    },
    /// A session was deleted.
    SessionClosed {
        /// Its id.
        id: String,
    },
}

/// A commit or a failure, told by the writer.
pub type Told = Result<u64, LedgerError>;

/// An open ledger.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    writer: writer::Writer,
    reader: Mutex<Connection>,
}

impl Ledger {
    /// Opens or makes the ledger in `directory` and takes it over for this attempt.
    ///
    /// `fingerprint` names the data set. `told` is called by the writer after every commit with the number of the last submission in
    /// it, or once with the failure that stopped it.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn open(
        directory: &Path,
        job: &JobIdentity,
        fingerprint: &str,
        told: impl Fn(Told) + Send + 'static,
    ) -> Result<(Self, Recovered), LedgerError> {
        let opened = open::open(directory, job, fingerprint)?;
        let writer = writer::Writer::start(opened.connection, opened.owner, told)?;
        let reader = open::reader(&opened.path)?;
        let ledger = Self {
            path: opened.path,
            writer,
            reader: Mutex::new(reader),
        };
        Ok((ledger, opened.recovered))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands operations to the writer, to be committed together. Answers the number of this submission.
    ///
    /// # Errors
    /// The writer has stopped.
    pub fn submit(&self, ops: Vec<Op>) -> Result<u64, LedgerError> {
        self.writer.submit(ops)
    }

    /// The kept groups of a step, in the order of their groups. Blocking.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn kept(&self, step: Step) -> Result<Vec<KeptGroup>, LedgerError> {
        load::kept(&self.reader.lock(), step)
    }

    /// The kept groups of a step, without their rows. Blocking.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn kept_groups(&self, step: Step) -> Result<Vec<GroupIndex>, LedgerError> {
        load::kept_groups(&self.reader.lock(), step)
    }

    /// The stored samples of a group. Blocking.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn partials(&self, group: GroupIndex) -> Result<Vec<StoredSlot>, LedgerError> {
        load::partials(&self.reader.lock(), group)
    }

    /// The book as the database has it. Blocking.
    ///
    /// # Errors
    /// See [`LedgerError`].
    pub fn book(&self) -> Result<Book, LedgerError> {
        load::book(&self.reader.lock())
    }

    /// Waits until everything that was submitted is committed, and stops the writer. Blocking.
    pub fn close(self) {
        self.writer.stop();
    }
}

/// Sorts what SQLite says into what a person can act on.
pub(crate) fn database_error(
    path: &Path,
    operation: &'static str,
    source: rusqlite::Error,
) -> LedgerError {
    use rusqlite::ErrorCode;

    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => LedgerError::NoSpace {
            path: path.to_owned(),
        },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => LedgerError::Corrupt {
            path: path.to_owned(),
            problem: source.to_string(),
        },
        // Of a full disk SQLite says so where it writes rows, not where it makes its shared memory; of a full quota never.
        Some(ErrorCode::SystemIoFailure) => LedgerError::Io {
            path: path.to_owned(),
            source,
        },
        _ => LedgerError::Database { operation, source },
    }
}
