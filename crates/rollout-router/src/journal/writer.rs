//! The one thread that writes: a transaction for all that waits.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::entry::{Kind, Row};
use super::{Entry, JournalError, JournalOptions, Pending};
use crate::id::HexId;

/// Entries that may wait.
const WAITING: usize = 8_192;
/// Entries of one transaction, and their bytes.
const GROUP: usize = 512;
const GROUP_BYTES: usize = 16 << 20;

struct Submission {
    entry: Entry,
    answer: oneshot::Sender<Result<(), JournalError>>,
}

/// The handle of the thread. Dropping it stops the thread after what was handed over.
#[derive(Debug)]
pub(super) struct Writer {
    sender: Option<SyncSender<Submission>>,
    thread: Option<JoinHandle<()>>,
    waiting_bytes: Arc<AtomicUsize>,
    max_waiting_bytes: usize,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        path: &Path,
        options: JournalOptions,
    ) -> Result<Self, JournalError> {
        let (sender, receiver) = sync_channel(WAITING);
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let desk = Desk {
            connection,
            path: path.to_owned(),
            lost: HashMap::new(),
        };
        let waiting = Arc::clone(&waiting_bytes);
        let thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || desk.run(&receiver, &waiting))
            .map_err(|source| JournalError::file(path, source))?;
        Ok(Self {
            sender: Some(sender),
            thread: Some(thread),
            waiting_bytes,
            max_waiting_bytes: options.max_waiting_bytes,
        })
    }

    pub(super) fn submit(&self, entry: Entry) -> Result<Pending, JournalError> {
        let sender = self.sender.as_ref().ok_or(JournalError::Ended)?;
        let weight = entry.weight();
        let bytes = self.waiting_bytes.fetch_add(weight, Ordering::Relaxed) + weight;
        let (answer, receiver) = oneshot::channel();
        // One entry alone always may wait, however large it is.
        let sent = if bytes > self.max_waiting_bytes && bytes > weight {
            Err(JournalError::Behind { bytes })
        } else {
            sender
                .try_send(Submission { entry, answer })
                .map_err(|error| match error {
                    TrySendError::Full(_) => JournalError::Behind { bytes },
                    TrySendError::Disconnected(_) => JournalError::Ended,
                })
        };
        if sent.is_err() {
            self.waiting_bytes.fetch_sub(weight, Ordering::Relaxed);
        }
        sent.map(|()| Pending { answer: receiver })
    }

    pub(super) fn stop(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the journal's writer panicked");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.join();
    }
}

/// What the thread works with.
struct Desk {
    connection: Connection,
    path: PathBuf,
    /// Sessions of which a turn could not be written, and why.
    lost: HashMap<HexId, String>,
}

impl Desk {
    fn run(mut self, receiver: &Receiver<Submission>, waiting: &AtomicUsize) {
        while let Ok(first) = receiver.recv() {
            let mut bytes = first.entry.weight();
            let mut group = vec![first];
            while group.len() < GROUP
                && bytes < GROUP_BYTES
                && let Ok(next) = receiver.try_recv()
            {
                bytes += next.entry.weight();
                group.push(next);
            }
            self.write_group(group);
            waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        // A clean end leaves one file.
        if let Err(error) = self
            .connection
            .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        {
            tracing::warn!(%error, "the journal's log stays beside it");
        }
    }

    fn write_group(&mut self, group: Vec<Submission>) {
        let entries: Vec<&Entry> = group.iter().map(|submission| &submission.entry).collect();
        if self.lost.is_empty() && self.write(&entries).is_ok() {
            for submission in group {
                let _ = submission.answer.send(Ok(()));
            }
            return;
        }
        // One by one, so that an entry that cannot be written costs no other.
        for Submission { entry, answer } in group {
            let _ = answer.send(self.write_one(&entry));
        }
    }

    fn write_one(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let session = entry.session();
        if let Entry::SessionRemoved { .. } = entry {
            self.write(&[entry])?;
            self.lost.remove(&session);
            return Ok(());
        }
        let adds = matches!(
            entry,
            Entry::TurnCommitted { .. } | Entry::RequestSent { .. }
        );
        if let Some(reason) = self.lost.get(&session).filter(|_| adds) {
            return Err(JournalError::Unrecorded {
                session,
                reason: reason.clone(),
            });
        }
        let written = self.write(&[entry]);
        if let (Err(error), Entry::TurnCommitted { .. }) = (&written, entry)
            && !matches!(error, JournalError::NoSession { .. })
        {
            self.lost.insert(session, error.to_string());
        }
        written
    }

    fn write(&mut self, entries: &[&Entry]) -> Result<(), JournalError> {
        let path = &self.path;
        let failed = |source| JournalError::database(path, source);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        for entry in entries {
            apply(&transaction, path, entry)?;
        }
        transaction.commit().map_err(failed)
    }
}

fn apply(tx: &Transaction<'_>, path: &Path, entry: &Entry) -> Result<(), JournalError> {
    let failed = |source| JournalError::database(path, source);
    let session = entry.session();
    match entry {
        Entry::SessionCreated { spec, .. } => {
            add(tx, path, &row(Kind::Created, session, 0, None, spec), "it")
        }
        Entry::RequestSent { rid, engine, .. } => {
            must_exist(tx, path, session)?;
            let row = row(Kind::Sent, session, 0, Some(*rid), engine.as_bytes());
            add(tx, path, &row, "its request")
        }
        Entry::RequestOver { rid, .. } => forget_sent(tx, session, rid).map_err(failed),
        Entry::TurnCommitted {
            number, rid, turn, ..
        } => {
            must_exist(tx, path, session)?;
            let row = row(Kind::Turn, session, *number, Some(*rid), turn);
            add(tx, path, &row, &format!("turn {number}"))?;
            forget_sent(tx, session, rid).map_err(failed)
        }
        Entry::SessionEnded { outcome, .. } => {
            must_exist(tx, path, session)?;
            let row = row(Kind::Ended, session, 0, None, outcome);
            add(tx, path, &row, "its end")
        }
        Entry::SessionRemoved { .. } => tx
            .prepare_cached("DELETE FROM entries WHERE session = ?1 AND kind <> 2")
            .and_then(|mut delete| delete.execute([session.as_str()]))
            .and_then(|_| {
                tx.prepare_cached("DELETE FROM entries WHERE session = ?1 AND kind = 2")?
                    .execute([session.as_str()])
            })
            .map(drop)
            .map_err(failed),
    }
}

fn row(kind: Kind, session: HexId, number: u32, rid: Option<HexId>, body: &[u8]) -> Row {
    Row {
        kind,
        session,
        number,
        rid,
        body: body.to_vec(),
    }
}

fn forget_sent(tx: &Transaction<'_>, session: HexId, rid: &HexId) -> rusqlite::Result<()> {
    tx.prepare_cached("DELETE FROM entries WHERE session = ?1 AND rid = ?2 AND kind = 2")?
        .execute([session.as_str(), rid.as_str()])
        .map(drop)
}

/// What comes after a session is gone would stay for ever.
fn must_exist(tx: &Transaction<'_>, path: &Path, session: HexId) -> Result<(), JournalError> {
    // The second condition lets SQLite use the index.
    let exists: rusqlite::Result<bool> = tx
        .prepare_cached(
            "SELECT EXISTS(SELECT 1 FROM entries WHERE session = ?1 AND kind = 1 AND kind <> 2)",
        )
        .and_then(|mut query| query.query_row([session.as_str()], |row| row.get(0)));
    match exists {
        Ok(true) => Ok(()),
        Ok(false) => Err(JournalError::NoSession { session }),
        Err(source) => Err(JournalError::database(path, source)),
    }
}

fn add(tx: &Transaction<'_>, path: &Path, row: &Row, what: &str) -> Result<(), JournalError> {
    insert(tx, row).map_err(|source| {
        if source.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) {
            return JournalError::Twice {
                session: row.session,
                what: what.to_owned(),
            };
        }
        JournalError::database(path, source)
    })
}

pub(super) fn insert(tx: &Transaction<'_>, row: &Row) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "INSERT INTO entries(kind, session, number, rid, body, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        row.kind.code(),
        row.session.as_str(),
        row.number,
        row.rid.as_ref().map(HexId::as_str),
        row.body,
        row.sum()
    ])
    .map(drop)
}
