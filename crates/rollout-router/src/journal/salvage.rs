//! Reads what can be read of a table, whatever state its pages are in.

use rusqlite::{Connection, params};

use super::entry::{Kind, Row};
use crate::id::HexId;

/// Rows of one query.
const PAGE: i64 = 256;
/// Ids that are tried one by one behind a page that cannot be read; then the steps double.
const SINGLE_STEPS: i64 = 4_096;
/// No table has so many rows.
const LAST_STEP: i64 = 1 << 40;

/// What was read.
#[derive(Default)]
pub(super) struct Salvage {
    pub(super) rows: Vec<Row>,
    pub(super) damage: Vec<String>,
}

impl Salvage {
    /// Nothing but the reason for it.
    pub(super) fn nothing(problem: String) -> Self {
        Self {
            rows: Vec::new(),
            damage: vec![problem],
        }
    }
}

/// Reads the whole table. Rows that cannot be read, or whose sum is wrong, are named.
pub(super) fn read(connection: &Connection) -> Salvage {
    let mut salvage = Salvage::default();
    let mut after = 0;
    let mut step = 0;
    loop {
        let position = after + step;
        match page(connection, position, &mut salvage) {
            Ok(Some(last)) => {
                if step > 0 {
                    salvage
                        .damage
                        .push(format!("entries after {after} cannot be read"));
                }
                (after, step) = (last, 0);
            }
            Ok(None) => {
                if step > 0 {
                    salvage
                        .damage
                        .push(format!("entries after {after} cannot be read"));
                }
                return salvage;
            }
            Err((last, error)) => {
                if let Some(last) = last {
                    (after, step) = (last, 0);
                }
                if after == 0 && step == 0 {
                    salvage.damage.push(format!("reading stopped: {error}"));
                }
                step = if step < SINGLE_STEPS {
                    step + 1
                } else {
                    step * 2
                };
                if step > LAST_STEP {
                    salvage
                        .damage
                        .push(format!("nothing after entry {after} can be read: {error}"));
                    return salvage;
                }
            }
        }
    }
}

/// Reads the next rows. Answers the id of the last one; of an error also how far it came.
fn page(
    connection: &Connection,
    after: i64,
    salvage: &mut Salvage,
) -> Result<Option<i64>, (Option<i64>, rusqlite::Error)> {
    let mut last = None;
    let mut statement = connection
        .prepare_cached(
            "SELECT id, kind, session, number, rid, body, sum FROM entries WHERE id > ?1 ORDER BY id LIMIT ?2",
        )
        .map_err(|error| (None, error))?;
    let mut rows = statement
        .query(params![after, PAGE])
        .map_err(|error| (None, error))?;
    loop {
        match rows.next() {
            Ok(Some(row)) => {
                let id: i64 = row.get(0).map_err(|error| (last, error))?;
                match whole_row(row) {
                    Some(row) => salvage.rows.push(row),
                    None => salvage.damage.push(format!("entry {id} is damaged")),
                }
                last = Some(id);
            }
            Ok(None) => return Ok(last),
            Err(error) => return Err((last, error)),
        }
    }
}

/// The row, if it is what was written.
fn whole_row(row: &rusqlite::Row<'_>) -> Option<Row> {
    let id = |text: String| HexId::parse(&text);
    let rid: Option<String> = row.get(4).ok()?;
    let rid = match rid {
        Some(text) => Some(id(text)?),
        None => None,
    };
    let found = Row {
        kind: Kind::of(row.get(1).ok()?)?,
        session: id(row.get(2).ok()?)?,
        number: row.get(3).ok()?,
        rid,
        body: row.get(5).ok()?,
    };
    let sum: i64 = row.get(6).ok()?;
    (found.sum() == sum).then_some(found)
}
