//! The end of a session, whoever declares it: the first outcome counts, nothing is recorded afterwards, and what is in flight is
//! aborted.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::id::HexId;
use crate::jobs::OutcomeRecord;
use crate::session::{Outcome, Phase, Session, bounded};
use crate::state::Inner;

/// Longest error text that is kept.
const ERROR_BYTES: usize = 8 << 10;

/// How a session ended, with what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    pub(crate) outcome: Outcome,
    pub(crate) exit_code: Option<i64>,
    pub(crate) signal: Option<i64>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) error: Option<String>,
    pub(crate) log_tail: Option<String>,
    pub(crate) agent_seconds: Option<f64>,
}

impl Report {
    pub(crate) fn plain(outcome: Outcome, error: Option<String>) -> Self {
        Self {
            outcome,
            exit_code: None,
            signal: None,
            metadata: Map::new(),
            error,
            log_tail: None,
            agent_seconds: None,
        }
    }
}

/// Ends a session. Answers whether this was its first outcome.
pub(crate) fn end(inner: &Arc<Inner>, session: &Session, report: Report) -> bool {
    let (turns, engine_fault) = {
        let mut state = session.state.lock();
        if matches!(state.phase, Phase::Ended(_)) {
            return false;
        }
        state.phase = Phase::Ended(report.outcome);
        state.last_activity = tokio::time::Instant::now();
        state.forest.close();
        state.settle_bytes(&inner.sessions);
        let fault = state.engine_faults.last().cloned();
        (state.forest.len(), fault)
    };
    inner.metrics.outcome(report.outcome);
    let reason = format!("the session has ended ({})", report.outcome.label());
    cancel(inner, session.id, &reason);
    if let Some(name) = &session.spec.job {
        let job = inner.jobs.of(name);
        if report.outcome.is_result() {
            job.note_loaded_agent();
        }
        job.queue.lock().retain(|queued| *queued != session.id);
        let Report {
            outcome,
            exit_code,
            signal,
            metadata,
            error,
            log_tail,
            agent_seconds,
        } = report;
        job.outcomes.lock().push(OutcomeRecord {
            seq: 0,
            session_id: session.id,
            outcome,
            exit_code,
            signal,
            metadata,
            error: error.map(|text| bounded(text, ERROR_BYTES)),
            log_tail: log_tail.map(|text| bounded(text, ERROR_BYTES)),
            turns,
            agent_seconds,
            engine_fault,
        });
        job.news.notify_waiters();
    }
    session.changed.notify_waiters();
    inner.sessions.ended.notify_waiters();
    true
}

/// Forgets a session that was taken out of the store.
pub(crate) fn delete(inner: &Arc<Inner>, session: &Session) {
    let claim_id = {
        let mut state = session.state.lock();
        state.forest.close();
        state.release_bytes(&inner.sessions);
        state.claim_id.take()
    };
    cancel(inner, session.id, "the session was deleted");
    if let Some(name) = &session.spec.job {
        inner.jobs.of(name).forget(session.id, claim_id.as_deref());
    }
    session.changed.notify_waiters();
}

fn cancel(inner: &Inner, session: HexId, reason: &str) {
    let sent = inner.flights.cancel_session(session, reason);
    inner.aborter.abort_in_background(sent);
}
