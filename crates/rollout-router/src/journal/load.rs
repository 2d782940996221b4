//! Rows become sessions again. Pure.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use super::entry::{Kind, Row};
use crate::id::HexId;

/// What an earlier process left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sessions in the order of their creation.
    pub sessions: Vec<RecoveredSession>,
    /// What could not be read, one line each; empty for a journal that is whole.
    pub damage: Vec<String>,
    /// Where the damaged file is now.
    pub set_aside: Option<PathBuf>,
}

/// A session as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredSession {
    /// Its id.
    pub session: HexId,
    /// What it was created with.
    pub spec: Vec<u8>,
    /// Its turns in the order of their commits, as bytes.
    pub turns: Vec<Vec<u8>>,
    /// Requests that may still run at an engine.
    pub sent: Vec<SentRequest>,
    /// What was known of its end.
    pub ended: Option<Vec<u8>>,
    /// The requests of its turns.
    pub(super) rids: Vec<Option<HexId>>,
}

/// A request whose end nobody saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRequest {
    /// Its id.
    pub rid: HexId,
    /// The engine that may have it.
    pub engine: String,
}

#[derive(Default)]
struct Parts {
    created: Option<(usize, Vec<u8>)>,
    turns: BTreeMap<u32, (Option<HexId>, Vec<u8>)>,
    sent: Vec<SentRequest>,
    ended: Option<Vec<u8>>,
}

/// Puts rows together, in the order in which they were written.
pub(super) fn sessions(rows: Vec<Row>, damage: &mut Vec<String>) -> Vec<RecoveredSession> {
    let mut parts: HashMap<HexId, Parts> = HashMap::new();
    for (order, row) in rows.into_iter().enumerate() {
        let of_session = parts.entry(row.session).or_default();
        match row.kind {
            Kind::Created => of_session.created = Some((order, row.body)),
            Kind::Sent => of_session.sent.extend(row.rid.map(|rid| SentRequest {
                rid,
                engine: String::from_utf8_lossy(&row.body).into_owned(),
            })),
            Kind::Turn => {
                of_session.turns.insert(row.number, (row.rid, row.body));
            }
            Kind::Ended => of_session.ended = Some(row.body),
        }
    }
    let mut found: Vec<(usize, RecoveredSession)> = Vec::new();
    for (session, parts) in parts {
        let count = parts.turns.len();
        let Some((order, spec)) = parts.created else {
            damage.push(format!(
                "session {}: what it was created with is lost, and with it {count} turns",
                session.short()
            ));
            continue;
        };
        let (mut turns, mut rids) = (Vec::new(), Vec::new());
        for (expected, (number, (rid, turn))) in (0..).zip(parts.turns) {
            if number != expected {
                break;
            }
            turns.push(turn);
            rids.push(rid);
        }
        if turns.len() < count {
            damage.push(format!(
                "session {}: turn {} is lost, and with it {} after it",
                session.short(),
                turns.len(),
                count - turns.len()
            ));
        }
        found.push((
            order,
            RecoveredSession {
                session,
                spec,
                turns,
                sent: parts.sent,
                ended: parts.ended,
                rids,
            },
        ));
    }
    found.sort_by_key(|(order, _)| *order);
    damage.sort();
    found.into_iter().map(|(_, session)| session).collect()
}

impl RecoveredSession {
    /// The rows that make it.
    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |kind, number, rid, body: &[u8]| Row {
            kind,
            session: self.session,
            number,
            rid,
            body: body.to_vec(),
        };
        let mut rows = vec![row(Kind::Created, 0, None, &self.spec)];
        for ((number, turn), rid) in (0..).zip(&self.turns).zip(&self.rids) {
            rows.push(row(Kind::Turn, number, *rid, turn));
        }
        for sent in &self.sent {
            rows.push(row(Kind::Sent, 0, Some(sent.rid), sent.engine.as_bytes()));
        }
        if let Some(outcome) = &self.ended {
            rows.push(row(Kind::Ended, 0, None, outcome));
        }
        rows
    }
}
