//! Live sessions.

mod asked;
mod faults;
mod lifecycle;
mod spec;
mod store;

pub(crate) use asked::{Asked, Evidence, RequestIdentity};
pub(crate) use faults::{EngineFault, EngineFaults, bounded};
pub(crate) use lifecycle::{Assignment, Clocks, Expiry, Outcome, Phase, due};
pub(crate) use spec::SessionSpec;
pub(crate) use store::Sessions;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rollout_session::Forest;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::chat::{Progress, Reply};
use crate::engines::Seat;
use crate::flights::Scope;
use crate::id::HexId;
use crate::jobs::AbortOrder;

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: HexId,
    pub(crate) spec: SessionSpec,
    pub(crate) created_at: Instant,
    pub(crate) state: Mutex<SessionState>,
    /// Something happened that a long poll waits for.
    pub(crate) changed: Notify,
}

/// What changes in a session.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) forest: Forest,
    /// Bytes of the forest that the store has counted.
    counted_bytes: usize,
    pub(crate) phase: Phase,
    pub(crate) last_activity: Instant,
    pub(crate) seat: Option<Seat>,
    pub(crate) calls: Vec<Call>,
    pub(crate) undelivered: Option<Undelivered>,
    pub(crate) asked: Asked,
    pub(crate) abort: Option<Arc<AbortOrder>>,
    /// The claim that the session was given for.
    pub(crate) claim_id: Option<String>,
    pub(crate) last_error: Option<String>,
    pub(crate) engine_faults: EngineFaults,
}

/// A turn that is being generated.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) rid: HexId,
    pub(crate) identity: RequestIdentity,
    pub(crate) started: Instant,
    pub(crate) progress: watch::Sender<Progress>,
}

/// A committed turn whose client was gone.
#[derive(Debug)]
pub(crate) struct Undelivered {
    pub(crate) identity: RequestIdentity,
    pub(crate) reply: Reply,
}

impl Session {
    pub(crate) fn new(id: HexId, spec: SessionSpec, now: Instant) -> Self {
        let phase = if spec.assign {
            Phase::Queued
        } else {
            Phase::Open
        };
        Self {
            id,
            spec,
            created_at: now,
            state: Mutex::new(SessionState {
                forest: Forest::new(0),
                counted_bytes: 0,
                phase,
                last_activity: now,
                seat: None,
                calls: Vec::new(),
                undelivered: None,
                asked: Asked::default(),
                abort: None,
                claim_id: None,
                last_error: None,
                engine_faults: EngineFaults::default(),
            }),
            changed: Notify::new(),
        }
    }

    pub(crate) fn scope(&self) -> Scope {
        Scope {
            job: self.spec.job.clone(),
            rollout_id: self.spec.rollout_id,
            session: Some(self.id),
        }
    }
}

impl SessionState {
    /// Tells the store what the records occupy now.
    pub(crate) fn settle_bytes(&mut self, store: &Sessions) {
        let bytes = self.forest.heap_bytes();
        store.resize(self.counted_bytes, bytes);
        self.counted_bytes = bytes;
    }

    /// Tells the store that the records are gone.
    pub(crate) fn release_bytes(&mut self, store: &Sessions) {
        store.resize(self.counted_bytes, 0);
        self.counted_bytes = 0;
    }
}

/// The time of day, for records.
pub(crate) fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |elapsed| elapsed.as_secs_f64())
}
