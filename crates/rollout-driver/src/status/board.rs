//! The current state, for whoever asks. Names are those of the job's status.

use std::sync::Arc;

use parking_lot::Mutex;
use rollout_engine::{Book, HookOutcome, JobResult, Progress, Tally, TeardownSummary};
use serde::Serialize;
use serde_json::Value;

use super::{Demand, Metrics};
use crate::run::Counters;

/// Version of the status and of the last word.
pub(super) const VERSION: u32 = 1;

/// What can be seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Version of this document: fields are added within one, never changed.
    pub version: u32,
    /// Running, `TearingDown`, Done.
    pub phase: &'static str,
    /// The attempt.
    pub attempt: u64,
    /// The current step.
    pub step: u32,
    /// Progress of the current step.
    pub progress: ProgressView,
    /// The last teardown.
    pub teardown: TeardownView,
    /// What agents are wanted; `None` without agents, and while the router does not say.
    pub demand: Option<Demand>,
    /// How the job ended.
    pub result: Option<JobResult>,
    /// Failures by reason, the most frequent one first, at most 16.
    pub recent_failures: Vec<FailureView>,
}

/// `status.progress`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressView {
    step: u32,
    groups: GroupsView,
    sessions: SessionsView,
    tokens: TokensView,
    #[serde(skip_serializing_if = "Option::is_none")]
    reward_mean: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupsView {
    target: u64,
    kept: u64,
    filtered: u64,
    in_flight: u64,
    recycled: u64,
    failed: u64,
    lost: u64,
}

impl GroupsView {
    fn of(tally: &Tally, target: u64) -> Self {
        Self {
            target,
            kept: tally.kept,
            filtered: tally.filtered.values().sum(),
            in_flight: 0,
            recycled: tally.recycled.values().sum(),
            failed: tally.failed.values().sum(),
            lost: tally.lost.values().sum(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionsView {
    active: u64,
    completed: u64,
    truncated: u64,
    aborted: u64,
    agent_failed: u64,
    infra_failed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
struct TokensView {
    generated: u64,
    discarded: u64,
    cached: u64,
}

/// `status.teardown`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TeardownView {
    fenced_sessions: u64,
    aborted_requests: u64,
    hook: Option<HookOutcome>,
    drain_millis: u64,
    stragglers: u64,
    unproven: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    troubles: Vec<String>,
}

/// An entry of `status.recentFailures`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureView {
    reason: String,
    message: String,
    count: u64,
}

/// Where the current state hangs.
#[derive(Debug, Clone)]
pub struct Board {
    view: Arc<Mutex<Arc<View>>>,
    metrics: Arc<Metrics>,
}

impl Board {
    /// A board of a driver that has done nothing yet.
    pub fn new(attempt: u64) -> Self {
        Self {
            view: Arc::new(Mutex::new(Arc::new(View {
                version: VERSION,
                phase: "Running",
                attempt,
                step: 0,
                progress: ProgressView::default(),
                teardown: TeardownView::default(),
                demand: None,
                result: None,
                recent_failures: Vec::new(),
            }))),
            metrics: Arc::new(Metrics::new()),
        }
    }

    /// The counters behind `/metrics`.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The state now.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock())
    }

    /// The state as JSON.
    pub fn json(&self) -> Value {
        serde_json::to_value(&*self.view()).unwrap_or_default()
    }

    pub(super) fn set_demand(&self, demand: Option<Demand>) {
        let mut slot = self.view.lock();
        if slot.demand != demand {
            let view = View::clone(&slot);
            *slot = Arc::new(View { demand, ..view });
        }
    }

    /// Says what the first sample waits for.
    pub(crate) fn waits_for_engines(&self, problem: &str) {
        let mut slot = self.view.lock();
        let mut view = View::clone(&slot);
        view.recent_failures = vec![FailureView {
            reason: "no_engine".to_owned(),
            message: problem.to_owned(),
            count: 1,
        }];
        *slot = Arc::new(view);
    }

    pub(crate) fn show(
        &self,
        progress: &Progress,
        tally: &Tally,
        counters: &Counters,
        teardown: &TeardownSummary,
    ) {
        let mut slot = self.view.lock();
        let (attempt, demand) = (slot.attempt, slot.demand);
        *slot = Arc::new(View {
            version: VERSION,
            phase: if progress.tearing_down {
                "TearingDown"
            } else {
                "Running"
            },
            attempt,
            step: progress.step.0,
            progress: ProgressView {
                step: progress.step.0,
                groups: GroupsView {
                    in_flight: progress.groups_in_flight,
                    ..GroupsView::of(tally, progress.target)
                },
                sessions: SessionsView {
                    active: progress.samples_in_flight,
                    completed: counters.completed,
                    truncated: counters.truncated,
                    aborted: counters.aborted,
                    agent_failed: counters.agent_failed,
                    infra_failed: progress.infra_failures,
                },
                tokens: TokensView {
                    generated: counters.generated_tokens,
                    discarded: progress.discarded_tokens,
                    cached: counters.cached_tokens,
                },
                reward_mean: counters.reward_mean().map(|mean| format!("{mean:.2}")),
            },
            teardown: TeardownView {
                fenced_sessions: teardown.fenced_sessions,
                aborted_requests: teardown.aborted_requests,
                hook: teardown.hook,
                drain_millis: teardown.drain_millis,
                stragglers: teardown.stragglers,
                unproven: teardown.unproven,
                troubles: teardown.troubles.clone(),
            },
            demand,
            result: None,
            recent_failures: counters
                .by_frequency()
                .into_iter()
                .map(|(reason, failure)| FailureView {
                    reason: reason.to_owned(),
                    message: failure.message.clone(),
                    count: failure.count,
                })
                .collect(),
        });
    }

    /// Shows the end. `target` is that of one step.
    pub(crate) fn decided(&self, book: &Book, result: &JobResult, target: u32) {
        let mut slot = self.view.lock();
        let mut view = View::clone(&slot);
        view.phase = "Done";
        view.result = Some(result.clone());
        // The current step is over, and the next one has not begun: what counts now is the whole job.
        let steps = u64::from(book.step.0).max(1);
        view.progress.groups = GroupsView::of(&book.total(), u64::from(target) * steps);
        *slot = Arc::new(view);
    }
}
