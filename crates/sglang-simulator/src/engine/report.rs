//! What a simulator counts, for `/simulator/state`, `/metrics`, and tests that prove that nothing runs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;

use super::Engine;
use crate::faults::FaultReport;
use crate::scheduler::{Ending, Outcome};

/// Aborted ids that are remembered.
const REMEMBERED_ABORTS: usize = 10_000;

/// The state of a simulator at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StateReport {
    /// Ids of requests that have not ended, those at the pause gate included.
    pub in_flight: Vec<String>,
    /// Requests in the running batch.
    pub running: usize,
    /// Requests in the waiting queue.
    pub waiting: usize,
    /// Requests that wait at the pause gate.
    pub gated: usize,
    /// Requests that ended by themselves.
    pub finished: u64,
    /// Requests that were aborted, by call or because their client left.
    pub aborted: u64,
    /// Ids of the last ten thousand of them, oldest first.
    pub aborted_rids: Vec<String>,
    /// Clients that left before their answer.
    pub clients_left: u64,
    /// Requests that a full queue turned away.
    pub rejected: u64,
    /// Requests for which the oracle knew no problem, or the script no rule.
    pub unknown: u64,
    /// Prompt tokens of ended requests.
    pub prompt_tokens: u64,
    /// Generated tokens of ended requests.
    pub generated_tokens: u64,
    /// Whether generation is paused.
    pub paused: bool,
    /// Version of the weights.
    pub weight_version: String,
    /// Faults in force.
    pub faults: Vec<FaultReport>,
    /// HTTP requests by path.
    pub paths: BTreeMap<String, PathReport>,
}

/// HTTP requests of one path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PathReport {
    /// Requests received.
    pub requests: u64,
    /// Requests without a complete answer yet.
    pub active: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Counts {
    pub(crate) finished: u64,
    pub(crate) aborted: u64,
    aborted_rids: VecDeque<Arc<str>>,
    pub(crate) clients_left: u64,
    pub(crate) rejected: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) retractions: u64,
    pub(crate) first_token_nanos: u64,
    pub(crate) latency_nanos: u64,
    pub(crate) queue_nanos: u64,
}

impl Counts {
    pub(super) fn finished(&mut self, rid: &Arc<str>, outcome: &Outcome) {
        self.prompt_tokens += outcome.job.prompt.len() as u64;
        self.generated_tokens += outcome.generated as u64;
        self.retractions += u64::from(outcome.times.retractions);
        self.queue_nanos += outcome.times.queued;
        let entry = outcome.times.forward_entry.unwrap_or(outcome.finished);
        let arrival = entry.saturating_sub(outcome.times.queued);
        self.latency_nanos += outcome.finished.saturating_sub(arrival);
        let first = outcome.times.prefill_finished.unwrap_or(outcome.finished);
        self.first_token_nanos += first.saturating_sub(arrival);
        if outcome.ending == Ending::Complete {
            self.finished += 1;
            return;
        }
        self.aborted += 1;
        if self.aborted_rids.len() == REMEMBERED_ABORTS {
            self.aborted_rids.pop_front();
        }
        self.aborted_rids.push_back(rid.clone());
    }
}

impl Engine {
    /// Counters and ids; faults, paths and unknown requests are added by the simulator.
    pub(crate) fn report(&self) -> StateReport {
        self.act(|state, _| {
            let (running, waiting) = state.scheduler.occupancy();
            let in_flight = state.rids.keys().map(ToString::to_string).collect();
            StateReport {
                in_flight,
                running,
                waiting,
                gated: state.gated.len(),
                finished: state.counts.finished,
                aborted: state.counts.aborted,
                aborted_rids: state
                    .counts
                    .aborted_rids
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                clients_left: state.counts.clients_left,
                rejected: state.counts.rejected,
                prompt_tokens: state.counts.prompt_tokens,
                generated_tokens: state.counts.generated_tokens,
                paused: state.paused,
                weight_version: state.scheduler.version().to_string(),
                ..StateReport::default()
            }
        })
    }

    pub(crate) fn counts(&self) -> Counts {
        self.act(|state, _| state.counts.clone())
    }
}
