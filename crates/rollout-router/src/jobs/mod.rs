//! Jobs: the queue of sessions that wait for a launcher, and the feed of outcomes that the driver reads.

mod feed;
mod order;
mod slots;

pub(crate) use feed::{OutcomeRecord, Outcomes};
pub(crate) use order::{AbortOrder, Held, HookReport, HookResult};
pub use slots::Stale;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::auth::Holder;
use crate::error::ApiError;
use crate::id::HexId;
use slots::Slots;

/// One job.
#[derive(Debug, Default)]
pub(crate) struct Job {
    /// Sessions are given out under its lock.
    pub(crate) queue: Mutex<VecDeque<HexId>>,
    claims: Mutex<HashMap<String, HexId>>,
    slots: Mutex<Slots>,
    pub(crate) outcomes: Mutex<Outcomes>,
    idle_claims: AtomicUsize,
    agents_loaded: AtomicBool,
    /// Sessions whose launchers have been told to abort since admission was closed.
    pub(crate) aborting: Mutex<Vec<Held>>,
    /// There is a session to claim, or a fence closed or opened.
    pub(crate) work: Notify,
    /// There is an outcome to read.
    pub(crate) news: Notify,
}

impl Job {
    pub(crate) fn enqueue(&self, session: HexId) {
        self.queue.lock().push_back(session);
        self.work.notify_one();
    }

    pub(crate) fn claimed_before(&self, claim_id: &str) -> Option<HexId> {
        self.claims.lock().get(claim_id).copied()
    }

    pub(crate) fn remember_claim(&self, claim_id: &str, session: HexId) {
        self.claims.lock().insert(claim_id.to_owned(), session);
    }

    pub(crate) fn forget(&self, session: HexId, claim_id: Option<&str>) {
        self.queue.lock().retain(|queued| *queued != session);
        if let Some(claim_id) = claim_id {
            self.claims.lock().remove(claim_id);
        }
        self.outcomes.lock().forget(session);
    }

    /// Refuses pods that are gone, or whose slot has a newer one.
    pub(crate) fn check_generation(&self, holder: &Holder) -> Result<(), ApiError> {
        let Holder {
            slot, generation, ..
        } = holder;
        let admitted = self.slots.lock().admit(slot, *generation);
        admitted.map_err(|why| ApiError::StaleGeneration {
            slot: slot.clone(),
            generation: *generation,
            why,
        })
    }

    /// Nothing is given to this pod any more, from the moment in which this returns.
    pub(crate) fn end_pod(&self, pod: &Holder) {
        let queue = self.queue.lock();
        self.slots.lock().end(&pod.slot, pod.generation);
        drop(queue);
        // One that waits for a session is told.
        self.work.notify_waiters();
    }

    /// The same, unless the pod is busy: no session is given to it between the question and its end.
    pub(crate) fn end_idle_pod(&self, pod: &Holder, is_busy: impl FnOnce() -> bool) -> bool {
        let queue = self.queue.lock();
        if is_busy() {
            return false;
        }
        self.slots.lock().end(&pod.slot, pod.generation);
        drop(queue);
        self.work.notify_waiters();
        true
    }

    pub(crate) fn idle_claims(&self) -> usize {
        self.idle_claims.load(Ordering::Relaxed)
    }

    /// An agent has been loaded, or runs.
    pub(crate) fn note_loaded_agent(&self) {
        self.agents_loaded.store(true, Ordering::Relaxed);
    }

    /// Whether an agent of the job has ever been loaded, as far as launchers say so.
    pub(crate) fn agents_loaded(&self) -> bool {
        self.agents_loaded.load(Ordering::Relaxed)
    }

    /// Counts a launcher that waits, until the guard goes.
    pub(crate) fn waiting(self: &Arc<Self>) -> WaitingClaim {
        self.idle_claims.fetch_add(1, Ordering::Relaxed);
        WaitingClaim(Arc::clone(self))
    }
}

/// A launcher that waits for a session.
#[derive(Debug)]
pub(crate) struct WaitingClaim(Arc<Job>);

impl Drop for WaitingClaim {
    fn drop(&mut self) {
        self.0.idle_claims.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All jobs by name.
#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<HashMap<Arc<str>, Arc<Job>>>);

impl Jobs {
    /// The job of a name; made when nobody has mentioned it before.
    pub(crate) fn of(&self, name: &str) -> Arc<Job> {
        let mut jobs = self.0.lock();
        if let Some(job) = jobs.get(name) {
            return Arc::clone(job);
        }
        let job = Arc::new(Job::default());
        jobs.insert(Arc::from(name), Arc::clone(&job));
        job
    }

    pub(crate) fn all(&self) -> Vec<(Arc<str>, Arc<Job>)> {
        let jobs = self.0.lock();
        jobs.iter()
            .map(|(name, job)| (Arc::clone(name), Arc::clone(job)))
            .collect()
    }
}
