//! The one thread that writes: group commit under the attempt's epoch.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rollout_engine::{Record, Source};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::load::{number, queue_name, restored_key};
use super::open::meta;
use super::{Op, Told, database_error};
use crate::error::LedgerError;

/// Submissions that one transaction takes at most.
const BATCH: usize = 512;

/// Who writes: the attempt, and this process among those of the attempt.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    attempt: u64,
    process: String,
    directory: PathBuf,
}

impl Owner {
    pub(super) fn new(attempt: u64, directory: &Path) -> Self {
        Self {
            attempt,
            process: format!("{:032x}", rand::random::<u128>()),
            directory: directory.to_owned(),
        }
    }

    pub(super) fn take_over(&self, connection: &Connection) -> rusqlite::Result<()> {
        set(connection, "attempt", &self.attempt.to_string())?;
        set(connection, "process", &self.process)
    }

    /// Refuses to write once another process has taken over.
    fn check(&self, connection: &Connection) -> Result<(), LedgerError> {
        let read = |key| meta(connection, key).map_err(|source| self.failed(source));
        if read("process")?.as_deref() == Some(self.process.as_str()) {
            return Ok(());
        }
        let newer = read("attempt")?.and_then(|text| text.parse().ok());
        Err(LedgerError::Superseded {
            attempt: self.attempt,
            newer: newer.unwrap_or(self.attempt),
        })
    }

    fn failed(&self, source: rusqlite::Error) -> LedgerError {
        database_error(&self.directory, "write", source)
    }
}

fn set(connection: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO meta(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO UPDATE SET value = ?2")?
        .execute([key, value])
        .map(drop)
}

struct Submission {
    number: u64,
    ops: Vec<Op>,
}

#[derive(Debug)]
struct Inlet {
    next: u64,
    sender: Option<Sender<Submission>>,
}

/// The handle of the writing thread. Dropping it stops the thread after what was submitted.
#[derive(Debug)]
pub(super) struct Writer {
    inlet: Mutex<Inlet>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        owner: Owner,
        told: impl Fn(Told) + Send + 'static,
    ) -> Result<Self, LedgerError> {
        let (sender, receiver) = channel();
        let directory = owner.directory.clone();
        let thread = std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || run(connection, &owner, &receiver, told))
            .map_err(|source| LedgerError::Directory {
                path: directory,
                source,
            })?;
        Ok(Self {
            inlet: Mutex::new(Inlet {
                next: 1,
                sender: Some(sender),
            }),
            thread: Some(thread),
        })
    }

    pub(super) fn submit(&self, ops: Vec<Op>) -> Result<u64, LedgerError> {
        let mut inlet = self.inlet.lock();
        let number = inlet.next;
        inlet.next += 1;
        inlet
            .sender
            .as_ref()
            .and_then(|sender| sender.send(Submission { number, ops }).ok())
            .map(|()| number)
            .ok_or(LedgerError::Stopped)
    }

    pub(super) fn stop(mut self) {
        self.join();
    }

    fn join(&mut self) {
        self.inlet.lock().sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the ledger's writer panicked");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.join();
    }
}

fn run(
    mut connection: Connection,
    owner: &Owner,
    receiver: &Receiver<Submission>,
    told: impl Fn(Told),
) {
    while let Ok(first) = receiver.recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(next) = receiver.try_recv()
        {
            batch.push(next);
        }
        let last = batch.last().map_or(0, |submission| submission.number);
        let committed = commit(&mut connection, owner, &batch);
        let failed = committed.is_err();
        told(committed.map(|()| last));
        if failed {
            return;
        }
    }
    // A clean end leaves one file.
    if let Err(error) = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(%error, "the ledger's log stays beside it");
    }
}

fn commit(
    connection: &mut Connection,
    owner: &Owner,
    batch: &[Submission],
) -> Result<(), LedgerError> {
    let failed = |source| owner.failed(source);
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    owner.check(&transaction)?;
    for op in batch.iter().flat_map(|submission| &submission.ops) {
        apply(&transaction, op).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

fn apply(tx: &Transaction<'_>, op: &Op) -> rusqlite::Result<()> {
    match op {
        Op::Record(record) => apply_record(tx, record)?,
        Op::Kept {
            take,
            step,
            group,
            rows,
        } => {
            tx.prepare_cached(
                "INSERT OR REPLACE INTO kept(take, step, group_index, rows) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![number(take.0), step.0, number(group.0), &rows[..]])?;
        }
        Op::Partials { group, slots } => {
            forget_partials(tx, number(group.0))?;
            for slot in slots {
                tx.prepare_cached(
                    "INSERT INTO partials(group_index, slot, finished, scored, samples) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    number(group.0),
                    slot.slot,
                    slot.finished,
                    slot.scored,
                    slot.samples
                ])?;
            }
        }
        Op::ForgetPartials { group } => forget_partials(tx, number(group.0))?,
        Op::StepInOutput { step } => {
            // The last step stays, so that a file of it that gets lost can be written again.
            tx.prepare_cached("DELETE FROM kept WHERE step < ?1")?
                .execute([step.0])?;
        }
        Op::SessionOpened { id } => {
            tx.prepare_cached("INSERT OR IGNORE INTO sessions(id) VALUES (?1)")?
                .execute([id])?;
        }
        Op::SessionClosed { id } => {
            tx.prepare_cached("DELETE FROM sessions WHERE id = ?1")?
                .execute([id])?;
        }
    }
    Ok(())
}

fn forget_partials(tx: &Transaction<'_>, group: i64) -> rusqlite::Result<()> {
    tx.prepare_cached("DELETE FROM partials WHERE group_index = ?1")?
        .execute([group])
        .map(drop)
}

fn apply_record(tx: &Transaction<'_>, record: &Record) -> rusqlite::Result<()> {
    match record {
        Record::Taken {
            take,
            group,
            step,
            source,
        } => {
            let (mut tries, mut samples) = (0i64, false);
            match source {
                Source::Dataset => {
                    set(tx, "next_group", &group.next().to_string())?;
                }
                Source::Queue(name) => {
                    let name = queue_name(*name);
                    let head = tx
                        .prepare_cached(
                            "SELECT position, tries, samples FROM queue WHERE name = ?1 ORDER BY position LIMIT 1",
                        )?
                        .query_row([name], |row| {
                            Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?))
                        })?;
                    (tries, samples) = (head.1, head.2);
                    tx.prepare_cached("DELETE FROM queue WHERE position = ?1")?
                        .execute([head.0])?;
                }
            }
            tx.prepare_cached(
                "INSERT INTO takes(take, group_index, step, tries, samples, state, reason) VALUES (?1, ?2, ?3, ?4, ?5, 'open', '')",
            )?
            .execute(params![
                number(take.0),
                number(group.0),
                step.0,
                tries,
                samples
            ])?;
            // What an interrupted ladder did is not about what is taken now.
            tx.prepare_cached("DELETE FROM rungs WHERE step = ?1")?
                .execute([step.0])?;
            set(tx, "next_take", &take.next().to_string())
        }
        Record::Ended { take, end, requeue } => {
            tx.prepare_cached("UPDATE takes SET state = ?2, reason = ?3 WHERE take = ?1")?
                .execute(params![number(take.0), end.state(), end.reason()])?;
            if let Some(requeue) = requeue {
                tx.prepare_cached(
                    "INSERT INTO queue(name, group_index, tries, samples, due) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    queue_name(requeue.queue),
                    number(requeue.entry.group.0),
                    requeue.entry.tries,
                    requeue.entry.samples,
                    number(requeue.entry.due.0)
                ])?;
            }
            Ok(())
        }
        Record::Cursor { next_group } => set(tx, "next_group", &next_group.to_string()),
        Record::Restored { step, tally } => {
            let key = restored_key(*step);
            let mut sum = tally.clone();
            if let Some(text) = meta(tx, &key)? {
                sum.add(&serde_json::from_str(&text).map_err(unwritable)?);
            }
            set(tx, &key, &json(&sum)?)
        }
        Record::Rung { step, report } => {
            let text = json(report)?;
            tx.prepare_cached("INSERT INTO rungs(step, report) VALUES (?1, ?2)")?
                .execute(params![step.0, text])
                .map(drop)
        }
        Record::StepClosed { step } => set(tx, "step", &step.next().to_string()),
        Record::Finished { result } => set(tx, "result", &json(result)?),
    }
}

fn json(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(unwritable)
}

fn unwritable(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}
