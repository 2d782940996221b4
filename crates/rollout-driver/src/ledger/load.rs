//! Reading: the book, kept groups, stored samples.

use rollout_engine::{Book, GroupIndex, OpenTake, QueueName, Queued, Step, TakeEnd, TakeId, Tally};
use rusqlite::{Connection, Row, params};
use serde::de::DeserializeOwned;

use super::database_error;
use super::open::meta;
use crate::error::LedgerError;

const RESTORED: &str = "restored/";

/// A kept group whose step is not in the output yet, or is the last one there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptGroup {
    /// The take.
    pub take: TakeId,
    /// Its group.
    pub group: GroupIndex,
    /// Its samples: one JSON object per line.
    pub rows: Vec<u8>,
}

/// The samples of one slot that wait for the next take of their group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSlot {
    /// The slot.
    pub slot: u32,
    /// Generated to its end.
    pub finished: bool,
    /// It has its reward.
    pub scored: bool,
    /// A JSON array of samples.
    pub samples: Vec<u8>,
}

fn failed(operation: &'static str) -> impl Fn(rusqlite::Error) -> LedgerError {
    move |source| database_error(std::path::Path::new("the ledger"), operation, source)
}

/// SQLite's integers are signed; ids never reach the sign.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(index)?).unwrap_or(0))
}

fn small(row: &Row<'_>, index: usize) -> rusqlite::Result<u32> {
    Ok(u32::try_from(row.get::<_, i64>(index)?).unwrap_or(0))
}

pub(super) fn book(connection: &Connection) -> Result<Book, LedgerError> {
    let mut book = Book {
        step: Step(meta_number(connection, "step")?),
        next_take: TakeId(meta_number(connection, "next_take")?),
        next_group: GroupIndex(meta_number(connection, "next_group")?),
        ..Book::default()
    };
    load_takes(connection, &mut book).map_err(failed("read the takes"))?;
    for (step, tally) in restored(connection)? {
        book.tallies.entry(step).or_default().add(&tally);
    }
    load_queues(connection, &mut book).map_err(failed("read the queues"))?;
    load_rungs(connection, &mut book).map_err(failed("read the rungs"))?;
    book.result = meta(connection, "result")
        .map_err(failed("read the result"))?
        .map(|text| from_json(&text))
        .transpose()?;
    Ok(book)
}

fn meta_number<T: std::str::FromStr + Default>(
    connection: &Connection,
    key: &str,
) -> Result<T, LedgerError> {
    let text = meta(connection, key).map_err(failed("read the cursor"))?;
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or_default())
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, LedgerError> {
    serde_json::from_str(text).map_err(|error| LedgerError::Corrupt {
        path: "the ledger".into(),
        problem: error.to_string(),
    })
}

fn load_takes(connection: &Connection, book: &mut Book) -> rusqlite::Result<()> {
    let mut counts = connection
        .prepare("SELECT step, state, reason, count(*) FROM takes GROUP BY step, state, reason")?;
    let mut rows = counts.query([])?;
    while let Some(row) = rows.next()? {
        let (step, n) = (Step(small(row, 0)?), unsigned(row, 3)?);
        let (state, reason): (String, String) = (row.get(1)?, row.get(2)?);
        let tally = book.tallies.entry(step).or_default();
        tally.taken += n;
        if let Some(end) = TakeEnd::from_parts(&state, reason) {
            tally.count(&end, n);
        }
    }
    let mut open = connection.prepare(
        "SELECT take, group_index, step, tries, samples FROM takes WHERE state = 'open' ORDER BY take",
    )?;
    let mut rows = open.query([])?;
    while let Some(row) = rows.next()? {
        let take = OpenTake {
            group: GroupIndex(unsigned(row, 1)?),
            step: Step(small(row, 2)?),
            tries: small(row, 3)?,
            samples: row.get(4)?,
        };
        book.open.insert(TakeId(unsigned(row, 0)?), take);
    }
    Ok(())
}

/// Under which key the meta table has the counts of a step that an earlier ledger saw.
pub(super) fn restored_key(step: Step) -> String {
    format!("{RESTORED}{}", step.0)
}

fn restored(connection: &Connection) -> Result<Vec<(Step, Tally)>, LedgerError> {
    let read = || -> rusqlite::Result<Vec<(String, String)>> {
        connection
            .prepare("SELECT key, value FROM meta WHERE key LIKE ?1")?
            .query_map([format!("{RESTORED}%")], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect()
    };
    let pairs = read().map_err(failed("read the finished steps"))?;
    let tallies = pairs.into_iter().filter_map(|(key, text)| {
        let step = key.strip_prefix(RESTORED)?.parse().ok()?;
        Some(from_json(&text).map(|tally| (Step(step), tally)))
    });
    tallies.collect()
}

fn load_queues(connection: &Connection, book: &mut Book) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare("SELECT name, group_index, tries, samples, due FROM queue ORDER BY position")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let entry = Queued {
            group: GroupIndex(unsigned(row, 1)?),
            tries: small(row, 2)?,
            samples: row.get(3)?,
            due: GroupIndex(unsigned(row, 4)?),
        };
        let name: String = row.get(0)?;
        if name == queue_name(QueueName::Front) {
            book.front.push_back(entry);
        } else {
            book.tail.push_back(entry);
        }
    }
    Ok(())
}

fn load_rungs(connection: &Connection, book: &mut Book) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare("SELECT report FROM rungs WHERE step = ?1 ORDER BY position")?;
    let mut rows = statement.query([book.step.0])?;
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        // A report of a newer version that we cannot read only means that its rung is climbed again.
        if let Ok(report) = serde_json::from_str(&text) {
            book.rungs.push(report);
        }
    }
    Ok(())
}

pub(super) fn queue_name(queue: QueueName) -> &'static str {
    match queue {
        QueueName::Front => "front",
        QueueName::Tail => "tail",
    }
}

pub(super) fn kept(connection: &Connection, step: Step) -> Result<Vec<KeptGroup>, LedgerError> {
    let read = || -> rusqlite::Result<_> {
        connection
            .prepare_cached(
                "SELECT take, group_index, rows FROM kept WHERE step = ?1 ORDER BY group_index, take",
            )?
            .query_map([step.0], |row| {
                Ok(KeptGroup {
                    take: TakeId(unsigned(row, 0)?),
                    group: GroupIndex(unsigned(row, 1)?),
                    rows: row.get(2)?,
                })
            })?
            .collect()
    };
    read().map_err(failed("read the kept groups"))
}

pub(super) fn kept_groups(
    connection: &Connection,
    step: Step,
) -> Result<Vec<GroupIndex>, LedgerError> {
    let read = || -> rusqlite::Result<_> {
        connection
            .prepare_cached("SELECT group_index FROM kept WHERE step = ?1 ORDER BY group_index")?
            .query_map([step.0], |row| Ok(GroupIndex(unsigned(row, 0)?)))?
            .collect()
    };
    read().map_err(failed("read the kept groups"))
}

pub(super) fn partials(
    connection: &Connection,
    group: GroupIndex,
) -> Result<Vec<StoredSlot>, LedgerError> {
    let read = || -> rusqlite::Result<_> {
        connection
            .prepare_cached(
                "SELECT slot, finished, scored, samples FROM partials WHERE group_index = ?1 ORDER BY slot",
            )?
            .query_map(params![number(group.0)], |row| {
                Ok(StoredSlot {
                    slot: small(row, 0)?,
                    finished: row.get(1)?,
                    scored: row.get(2)?,
                    samples: row.get(3)?,
                })
            })?
            .collect()
    };
    read().map_err(failed("read stored samples"))
}

pub(super) fn sessions(connection: &Connection) -> Result<Vec<String>, LedgerError> {
    let read = || -> rusqlite::Result<_> {
        connection
            .prepare("SELECT id FROM sessions ORDER BY id")?
            .query_map([], |row| row.get(0))?
            .collect()
    };
    read().map_err(failed("read the sessions"))
}
