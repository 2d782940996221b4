//! Outcomes of the sessions of a job, numbered, kept until their session is deleted.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::id::HexId;
use crate::session::{EngineFault, Outcome};

/// What became of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OutcomeRecord {
    pub(crate) seq: u64,
    pub(crate) session_id: HexId,
    pub(crate) outcome: Outcome,
    pub(crate) exit_code: Option<i64>,
    pub(crate) signal: Option<i64>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) error: Option<String>,
    pub(crate) log_tail: Option<String>,
    pub(crate) turns: usize,
    pub(crate) agent_seconds: Option<f64>,
    /// An engine failed the latest turn.
    pub(crate) engine_fault: Option<EngineFault>,
}

/// The feed.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    next: u64,
    records: BTreeMap<u64, OutcomeRecord>,
    by_session: HashMap<HexId, u64>,
}

impl Outcomes {
    /// Adds an outcome; its number is set here. A session has one.
    pub(crate) fn push(&mut self, mut record: OutcomeRecord) {
        if self.by_session.contains_key(&record.session_id) {
            return;
        }
        record.seq = self.next;
        self.next += 1;
        self.by_session.insert(record.session_id, record.seq);
        self.records.insert(record.seq, record);
    }

    /// Outcomes from number `from` on, and the number to ask for next.
    pub(crate) fn from(&self, from: u64, at_most: usize) -> (u64, Vec<OutcomeRecord>) {
        let records: Vec<OutcomeRecord> = self
            .records
            .range(from..)
            .take(at_most)
            .map(|(_, record)| record.clone())
            .collect();
        let next = match records.last() {
            Some(last) if records.len() == at_most => last.seq + 1,
            _ => self.next,
        };
        (next, records)
    }

    pub(crate) fn forget(&mut self, session: HexId) {
        if let Some(seq) = self.by_session.remove(&session) {
            self.records.remove(&seq);
        }
    }
}
