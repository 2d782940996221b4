//! The rungs of the teardown ladder, carried out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use rollout_engine::{HookOutcome, Reach, Rung, RungOutcome, RungReport};
use serde_json::{Map, Value, json};
use sglang_client::ClientError;

use super::patience::{Patience, Unclimbed};
use crate::router::{AbortAnswer, AgentAbort, FenceAnswer, OutcomeFeed, RouterClient};

/// Sessions that are deleted at once at the most.
const DELETES: usize = 64;

/// What the rungs need.
#[derive(Debug, Clone)]
pub(super) struct Climber {
    pub(super) router: RouterClient,
    /// Sessions that are open.
    pub(super) sessions: Arc<Mutex<BTreeSet<String>>>,
    /// Parameters of the agents' plug-in.
    pub(super) parameters: Map<String, Value>,
    /// Knows the router's process.
    pub(super) feed: OutcomeFeed,
    /// Whether there are agents to tell.
    pub(super) agents: bool,
    /// How long the agents' hook may take.
    pub(super) hook: Duration,
    /// How long agents may take to end by themselves.
    pub(super) drain: Duration,
    /// For a router that does not answer, over all rungs of a ladder.
    pub(super) patience: Arc<Patience>,
}

impl Climber {
    /// Climbs one rung. Never fails: the report says how it went.
    pub(super) async fn climb(&self, rung: Rung, step: u32, within: Duration) -> RungReport {
        if rung == Rung::Fence {
            self.patience.renew();
        }
        let mut report = self.attempt(rung, step, within).await;
        if self.patience.gone().is_some() {
            report.reach = Reach::RouterGone;
        }
        report
    }

    async fn attempt(&self, rung: Rung, step: u32, within: Duration) -> RungReport {
        let report = match rung {
            Rung::Fence | Rung::Abort | Rung::SecondAbort | Rung::Prove => {
                self.fence(rung, step, within).await
            }
            Rung::Hook => self.hook(step, within).await,
            Rung::Release => self.release(within).await,
            // The batch loop itself sees when these end.
            Rung::Drain | Rung::Collect => Ok(RungReport::new(rung, RungOutcome::Done)),
        };
        report.unwrap_or_else(|error| {
            tracing::warn!(%error, ?rung, "a rung of the teardown failed");
            let outcome = match error {
                Unclimbed::Call(ClientError::TimedOut { .. }) => RungOutcome::TimedOut,
                _ => RungOutcome::Failed(error.to_string()),
            };
            let mut report = RungReport::new(rung, outcome);
            report.hook = match (rung, &report.outcome) {
                (Rung::Hook, RungOutcome::TimedOut) => Some(HookOutcome::HookTimedOut),
                (Rung::Hook, _) => Some(HookOutcome::HookFailed),
                _ => None,
            };
            report
        })
    }

    /// The first fence tells the launchers of the abort as well: an agent that ends with its request must not be gone before its hook
    /// has run.
    async fn fence(
        &self,
        rung: Rung,
        step: u32,
        within: Duration,
    ) -> Result<RungReport, Unclimbed> {
        let agents = (self.agents && rung == Rung::Fence).then(|| self.agent_abort(step));
        let call = || self.router.fence(agents.as_ref(), within);
        let answer = self.patience.call(&self.router, call).await?;
        let mut report = RungReport::new(rung, fence_outcome(&answer));
        report.fenced_sessions = answer.sessions;
        let open = answer.left + answer.unproven;
        report.aborted_requests = answer.requests.saturating_sub(open);
        report.left = answer.left;
        report.unproven = answer.unproven;
        if open > 0 {
            report.reach = Reach::EnginesSilent;
        }
        Ok(report)
    }

    async fn hook(&self, step: u32, within: Duration) -> Result<RungReport, Unclimbed> {
        let agents = self.agent_abort(step);
        let call = || self.router.agent_abort(&agents, within);
        let answer = self.patience.call(&self.router, call).await?;
        let hook = hook_outcome(&answer);
        let outcome = match hook {
            HookOutcome::HookTimedOut => RungOutcome::TimedOut,
            HookOutcome::HookFailed => RungOutcome::Failed(first_error(&answer)),
            HookOutcome::NoHook | HookOutcome::HookSucceeded => RungOutcome::Done,
        };
        let mut report = RungReport::new(Rung::Hook, outcome);
        report.hook = Some(hook);
        Ok(report)
    }

    fn agent_abort(&self, step: u32) -> AgentAbort<'static> {
        AgentAbort {
            reason: "the rollout is over",
            args: self.hook_args(step),
            hook: self.hook,
            drain: self.drain,
        }
    }

    /// The `args` of the agents' hook: the job's parameters, and what tells its backend whose work to end. As in Miles, the plural of the
    /// instance id is a map from ports.
    fn hook_args(&self, step: u32) -> Value {
        let mut args = self.parameters.clone();
        let sessions: Vec<String> = self.sessions.lock().iter().cloned().collect();
        args.insert("rollout_id".into(), json!(step));
        args.insert("session_ids".into(), json!(sessions));
        let instance = self.feed.instance();
        args.insert("session_server_instance_id".into(), json!(instance));
        args.insert(
            "session_server_instance_ids".into(),
            json!({ self.router.port(): instance }),
        );
        Value::Object(args)
    }

    async fn release(&self, within: Duration) -> Result<RungReport, Unclimbed> {
        let sessions: Vec<String> = self.sessions.lock().iter().cloned().collect();
        let total = sessions.len();
        if total == 0 {
            return Ok(RungReport::new(Rung::Release, RungOutcome::Done));
        }
        let deleting = delete_all(sessions, |session| async move {
            let call = || self.router.delete_once(&session);
            let deleted = self.patience.call(&self.router, call).await;
            deleted.map_err(|error| error.to_string())
        });
        let left = match tokio::time::timeout(within, deleting).await {
            Ok(left) => left,
            Err(_) => Undeleted {
                count: total,
                error: format!("not within {} s", within.as_secs_f64()),
            },
        };
        let outcome = if left.count == 0 {
            RungOutcome::Done
        } else {
            let Undeleted { count, error } = left;
            RungOutcome::Failed(format!(
                "{count} of {total} sessions were not deleted: {error}"
            ))
        };
        Ok(RungReport::new(Rung::Release, outcome))
    }
}

/// Sessions that could not be deleted.
#[derive(Debug, Default)]
pub(super) struct Undeleted {
    pub(super) count: usize,
    /// Why, of one of them.
    pub(super) error: String,
}

/// Deletes sessions, some at a time.
pub(super) async fn delete_all<F>(sessions: Vec<String>, delete: impl Fn(String) -> F) -> Undeleted
where
    F: Future<Output = Result<(), String>>,
{
    futures_util::stream::iter(sessions)
        .map(delete)
        .buffer_unordered(DELETES)
        .fold(Undeleted::default(), |mut left, deleted| {
            if let Err(error) = deleted {
                left.count += 1;
                left.error = error;
            }
            std::future::ready(left)
        })
        .await
}

fn fence_outcome(answer: &FenceAnswer) -> RungOutcome {
    let silent: Vec<String> = answer
        .engines
        .iter()
        .filter_map(|engine| Some(format!("{}: {}", engine.url, engine.error.as_ref()?)))
        .collect();
    if silent.is_empty() && answer.left == 0 {
        return RungOutcome::Done;
    }
    let mut problem = format!("{} requests are left", answer.left);
    if let Some(first) = silent.first() {
        problem = format!("{problem}; {first}");
    }
    RungOutcome::Failed(problem)
}

fn hook_outcome(answer: &AbortAnswer) -> HookOutcome {
    let hooks = answer.hooks;
    if hooks.timed_out > 0 {
        HookOutcome::HookTimedOut
    } else if hooks.failed > 0 {
        HookOutcome::HookFailed
    } else if hooks.succeeded > 0 {
        HookOutcome::HookSucceeded
    } else {
        HookOutcome::NoHook
    }
}

fn first_error(answer: &AbortAnswer) -> String {
    answer
        .errors
        .first()
        .cloned()
        .unwrap_or_else(|| "no reason given".into())
}
