//! Requests in flight, and the fences that close scopes.
//!
//! ```text
//!   admit(scope) --> Ticket --dispatch(engine, rids)--> sent --> ... --> Ticket dropped: terminal reply, or given up
//!        ^                        ^
//!        `--- one lock with ------'--- fence(scope): closes the scope and lists what is in flight
//! ```
//!
//! Admission and registration happen under the lock that a fence takes, and a request asks again before it is sent. So every request
//! of a fenced scope is either refused, or known to the fence: none can slip between.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::engines::{Engine, Outstanding};
use crate::error::ApiError;
use crate::id::HexId;

/// Whose request it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Scope {
    pub(crate) job: Option<Arc<str>>,
    pub(crate) rollout_id: Option<i64>,
    pub(crate) session: Option<HexId>,
}

/// What a fence closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FenceScope {
    /// Everything: the router stops.
    All,
    /// A job, or one step of it, or some of its sessions.
    Job {
        job: Arc<str>,
        rollout_id: Option<i64>,
        sessions: Option<Vec<HexId>>,
    },
}

impl FenceScope {
    pub(crate) fn covers(&self, scope: &Scope) -> bool {
        let Self::Job {
            job,
            rollout_id,
            sessions,
        } = self
        else {
            return true;
        };
        scope.job.as_ref() == Some(job)
            && (rollout_id.is_none() || scope.rollout_id == *rollout_id)
            && sessions.as_ref().is_none_or(|sessions| {
                scope
                    .session
                    .is_some_and(|session| sessions.contains(&session))
            })
    }

    fn describe(&self) -> String {
        match self {
            Self::All => "the router is stopping".to_owned(),
            Self::Job {
                job, rollout_id, ..
            } => match rollout_id {
                Some(rollout_id) => format!("rollout {rollout_id} of job {job} has ended"),
                None => format!("job {job} has ended its rollout"),
            },
        }
    }
}

/// A request that was sent and has no terminal reply yet.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) engine: Arc<Engine>,
    pub(crate) rids: Arc<[String]>,
}

#[derive(Debug)]
struct Flight {
    scope: Scope,
    sent: Option<(Arc<Engine>, Arc<[String]>)>,
    /// Ended by a fence or by its session's end: it may not be sent any more.
    cancelled: Option<String>,
}

#[derive(Debug, Default)]
struct Gate {
    next: u64,
    fences: Vec<FenceScope>,
    flights: HashMap<u64, Flight>,
    /// The latest flights that ended without a terminal reply.
    unproven: BTreeSet<u64>,
}

/// How many flights are remembered that ended without a terminal reply.
const UNPROVEN_KEPT: usize = 16_384;

impl Gate {
    fn closed_for(&self, scope: &Scope) -> Option<String> {
        let fence = self.fences.iter().find(|fence| fence.covers(scope))?;
        Some(fence.describe())
    }

    fn sent(&self, wanted: impl Fn(&Scope) -> bool) -> Vec<Sent> {
        let flights = self.flights.iter();
        flights
            .filter(|(_, flight)| wanted(&flight.scope))
            .filter_map(|(number, flight)| {
                let (engine, rids) = flight.sent.clone()?;
                Some(Sent {
                    number: *number,
                    engine,
                    rids,
                })
            })
            .collect()
    }
}

/// The registry.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    gate: Mutex<Gate>,
    /// A flight has ended.
    ended: Notify,
}

impl Flights {
    /// Whether a scope is open.
    pub(crate) fn check(&self, scope: &Scope) -> Result<(), ApiError> {
        match self.gate.lock().closed_for(scope) {
            Some(reason) => Err(ApiError::RolloutClosed(reason)),
            None => Ok(()),
        }
    }

    /// Registers a request of a scope that is open.
    pub(crate) fn admit(self: &Arc<Self>, scope: Scope) -> Result<Ticket, ApiError> {
        let mut gate = self.gate.lock();
        if let Some(reason) = gate.closed_for(&scope) {
            return Err(ApiError::RolloutClosed(reason));
        }
        gate.next += 1;
        let number = gate.next;
        let flight = Flight {
            scope,
            sent: None,
            cancelled: None,
        };
        gate.flights.insert(number, flight);
        Ok(Ticket {
            flights: Arc::clone(self),
            number,
            outstanding: None,
            proven: false,
        })
    }

    /// Closes a scope. Answers the number of requests that it had, and those that were sent.
    pub(crate) fn fence(&self, fence: FenceScope) -> (usize, Vec<Sent>) {
        let mut gate = self.gate.lock();
        let reason = fence.describe();
        let mut requests = 0;
        for flight in gate.flights.values_mut() {
            if fence.covers(&flight.scope) {
                requests += 1;
                flight.cancelled = Some(reason.clone());
            }
        }
        let sent = gate.sent(|scope| fence.covers(scope));
        if !gate.fences.contains(&fence) {
            gate.fences.push(fence);
        }
        (requests, sent)
    }

    /// Opens everything of a job again. Answers whether anything was closed.
    pub(crate) fn unfence(&self, job: &str) -> bool {
        let mut gate = self.gate.lock();
        let before = gate.fences.len();
        gate.fences.retain(
            |fence| !matches!(fence, FenceScope::Job { job: fenced, .. } if **fenced == *job),
        );
        gate.fences.len() < before
    }

    /// Ends what a session has in flight; answers what was sent of it.
    pub(crate) fn cancel_session(&self, session: HexId, reason: &str) -> Vec<Sent> {
        let mut gate = self.gate.lock();
        for flight in gate.flights.values_mut() {
            if flight.scope.session == Some(session) {
                flight.cancelled = Some(reason.to_owned());
            }
        }
        gate.sent(|scope| scope.session == Some(session))
    }

    /// Ends a request whose clients are gone; answers where it was sent, if it was.
    pub(crate) fn cancel(&self, number: u64, reason: &str) -> Option<Sent> {
        let mut gate = self.gate.lock();
        let flight = gate.flights.get_mut(&number)?;
        flight.cancelled = Some(reason.to_owned());
        let (engine, rids) = flight.sent.clone()?;
        Some(Sent {
            number,
            engine,
            rids,
        })
    }

    /// The request that has this id at an engine.
    pub(crate) fn find(&self, rid: &str) -> Option<Sent> {
        let gate = self.gate.lock();
        gate.flights.iter().find_map(|(number, flight)| {
            let (engine, rids) = flight.sent.as_ref()?;
            rids.iter().any(|known| known == rid).then(|| Sent {
                number: *number,
                engine: Arc::clone(engine),
                rids: Arc::clone(rids),
            })
        })
    }

    /// Whether a request has not ended.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.gate.lock().flights.contains_key(&number)
    }

    /// Whether a request ended without a terminal reply of its engine.
    pub(crate) fn is_unproven(&self, number: u64) -> bool {
        self.gate.lock().unproven.contains(&number)
    }

    /// Number of requests in flight.
    pub(crate) fn len(&self) -> usize {
        self.gate.lock().flights.len()
    }

    /// `numbers` without those at the start that have ended.
    fn skip_ended<'a>(&self, numbers: &'a [u64]) -> &'a [u64] {
        let gate = self.gate.lock();
        let open = numbers
            .iter()
            .position(|number| gate.flights.contains_key(number));
        open.map_or(&[], |first| &numbers[first..])
    }

    /// Waits until none of `numbers` is in flight.
    pub(crate) async fn wait_for_end(&self, numbers: &[u64]) {
        let mut open = numbers;
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            open = self.skip_ended(open);
            if open.is_empty() {
                return;
            }
            ended.await;
        }
    }
}

/// A registered request. Dropping it takes it out of the registry.
#[derive(Debug)]
pub(crate) struct Ticket {
    flights: Arc<Flights>,
    number: u64,
    outstanding: Option<Outstanding>,
    proven: bool,
}

impl Ticket {
    /// The engine has said its last word on the request.
    pub(crate) fn prove(&mut self) {
        self.proven = true;
    }

    /// Its number in the registry.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the engine has said its last word.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Puts down where the request goes. The last check before it is sent.
    pub(crate) fn dispatch(
        &mut self,
        place: Outstanding,
        rids: &Arc<[String]>,
    ) -> Result<(), ApiError> {
        let mut gate = self.flights.gate.lock();
        let Some(flight) = gate.flights.get_mut(&self.number) else {
            return Err(ApiError::Internal(
                "the request is not registered".to_owned(),
            ));
        };
        if let Some(reason) = &flight.cancelled {
            return Err(ApiError::RolloutClosed(reason.clone()));
        }
        flight.sent = Some((Arc::clone(place.engine()), Arc::clone(rids)));
        drop(gate);
        self.outstanding = Some(place);
        Ok(())
    }

    /// Why the request was ended from outside, if it was.
    pub(crate) fn cancelled(&self) -> Option<ApiError> {
        let gate = self.flights.gate.lock();
        let reason = gate.flights.get(&self.number)?.cancelled.clone()?;
        Some(ApiError::RolloutClosed(reason))
    }

    /// Takes back a dispatch of which nothing was sent.
    pub(crate) fn recall(&mut self) {
        self.outstanding = None;
        if let Some(flight) = self.flights.gate.lock().flights.get_mut(&self.number) {
            flight.sent = None;
        }
    }

    /// Where it was sent, if it was.
    pub(crate) fn sent(&self) -> Option<Sent> {
        let gate = self.flights.gate.lock();
        let (engine, rids) = gate.flights.get(&self.number)?.sent.clone()?;
        Some(Sent {
            number: self.number,
            engine,
            rids,
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.outstanding = None;
        let mut gate = self.flights.gate.lock();
        let flight = gate.flights.remove(&self.number);
        if !self.proven && flight.is_some_and(|flight| flight.sent.is_some()) {
            gate.unproven.insert(self.number);
            if gate.unproven.len() > UNPROVEN_KEPT {
                gate.unproven.pop_first();
            }
        }
        drop(gate);
        self.flights.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
