//! The journal: what must outlive the router's process, in one SQLite file.
//!
//! ```text
//!   handlers --append--> queue --> one thread: a transaction for all that waits --> file (write-ahead log)
//!      ^                                                   |
//!      +---------------- Pending::durable -----------------+
//! ```
//!
//! Entries say that a session was created, that a request was sent (before it is), that a turn was committed (before its client sees
//! it), that a session ended, and that it is gone. Guarantees: what was said to be durable is there after `kill -9`, once; with
//! [`Sync::Power`] also after a power cut. A file that is damaged is set aside and named, what can be read of it is kept: of each session
//! the turns before the first one that is missing. A journal that cannot write says so to whoever waits, and takes no further turn of a
//! session of which it lost one; others go on when there is room again. The file has a largest size, and a session that is gone gives its
//! room back.
//!
//! Caveats: one process has the file at a time. The end of a write-ahead log that somebody else cut off cannot be told from one that was
//! never written. Network file systems are not for it.

mod entry;
mod error;
mod load;
mod open;
mod salvage;
mod writer;

pub use entry::Entry;
pub use error::JournalError;
pub use load::{Recovered, RecoveredSession, SentRequest};

use std::path::Path;
use std::time::Duration;

use tokio::sync::oneshot;

use writer::Writer;

/// What the journal outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// The end of the process, however it comes.
    #[default]
    Process,
    /// A power cut too: each group of entries waits for the disk.
    Power,
}

/// Settings of a journal.
#[derive(Debug, Clone, Copy)]
pub struct JournalOptions {
    /// What it outlives.
    pub sync: Sync,
    /// Largest size of the file in bytes, without its log.
    pub max_bytes: u64,
    /// Bytes that may wait to be written.
    pub max_waiting_bytes: usize,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            sync: Sync::Process,
            max_bytes: 16 << 30,
            max_waiting_bytes: 256 << 20,
        }
    }
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    writer: Writer,
}

impl Journal {
    /// Opens the journal at `path`, or makes one, and reads what an earlier process left. Blocking.
    ///
    /// # Errors
    /// The file cannot be had, belongs to another process, or was written by another version. Damage is no error: see [`Recovered`].
    pub fn open(path: &Path, options: JournalOptions) -> Result<(Self, Recovered), JournalError> {
        let (connection, recovered) = open::open(path, options)?;
        let writer = Writer::start(connection, path, options)?;
        Ok((Self { writer }, recovered))
    }

    /// Hands an entry over. It is written in the order in which it was handed over; wait for [`Pending::durable`] before anybody relies on it.
    ///
    /// # Errors
    /// The journal has ended, or more waits than may wait.
    pub fn append(&self, entry: Entry) -> Result<Pending, JournalError> {
        self.writer.submit(entry)
    }

    /// Writes what was handed over, and closes the file. Blocking.
    pub fn close(self) {
        self.writer.stop();
    }
}

/// An entry that may not be written yet.
#[derive(Debug)]
pub struct Pending {
    answer: oneshot::Receiver<Result<(), JournalError>>,
}

impl Pending {
    /// Waits until the entry is written, at most so long.
    ///
    /// # Errors
    /// It was not written, or not within that time: then nobody knows, and the session must end.
    pub async fn durable(self, within: Duration) -> Result<(), JournalError> {
        match tokio::time::timeout(within, self.answer).await {
            Ok(answer) => answer.unwrap_or(Err(JournalError::Ended)),
            Err(_) => Err(JournalError::Slow { within }),
        }
    }

    /// The same without a deadline, for a thread. Blocking.
    ///
    /// # Errors
    /// It was not written.
    pub fn wait(self) -> Result<(), JournalError> {
        self.answer
            .blocking_recv()
            .unwrap_or(Err(JournalError::Ended))
    }
}
