//! A job's phase and conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::Input;
use super::course::{Course, End, Stop};
use super::observed::{AgentLife, PoolView};
use super::report::{Doing, Facts, Outcome};
use crate::api::conditions::{reasons, types};
use crate::api::job::{HookResult, Phase};
use crate::plan::conditions::{self, Claim};
use crate::plan::pool::Trouble;

const DRIVER_STARTS: &str = "the driver starts";

/// What is said about a job, from where its course leads.
pub(super) struct View<'a> {
    pub(super) input: &'a Input<'a>,
    pub(super) course: &'a Course,
    pub(super) facts: &'a Facts,
}

impl View<'_> {
    /// The end, once nothing of the job is left.
    pub(super) fn end(&self) -> Option<&Outcome> {
        match self.course {
            Course::Settle(End::Decided(outcome)) if self.is_settled() => Some(outcome),
            _ => None,
        }
    }

    /// What the driver does; what the status says of it until a controller that has just started hears from it.
    fn doing(&self) -> Option<Doing> {
        if let Some(report) = &self.input.observed.report {
            return Some(report.doing);
        }
        if !self.input.was_driver_seen() {
            return None;
        }
        Some(if self.input.was(types::SAMPLING) {
            Doing::Generating
        } else {
            Doing::TearingDown
        })
    }

    fn is_settled(&self) -> bool {
        self.input.agents_left().next().is_none()
    }

    /// One word, for people.
    pub(super) fn phase(&self) -> Phase {
        match self.course {
            Course::Settle(End::Suspended) if self.is_settled() => Phase::Suspended,
            Course::Settle(End::Decided(outcome)) if self.is_settled() => {
                if outcome.success {
                    Phase::Succeeded
                } else {
                    Phase::Failed
                }
            }
            Course::Settle(_) | Course::Stop(_) => Phase::TearingDown,
            Course::Begin(_) | Course::Rest(_) => Phase::Starting,
            Course::Wait(_) | Course::Over => Phase::Pending,
            Course::Run => match self.doing() {
                None => Phase::Starting,
                Some(Doing::Generating) => Phase::Running,
                Some(Doing::TearingDown | Doing::Done) => Phase::TearingDown,
            },
        }
    }

    /// All of them.
    pub(super) fn conditions(&self) -> Vec<Condition> {
        let input = self.input;
        conditions::merge(
            &input.before.conditions,
            self.claims(),
            input.generation,
            input.now,
        )
    }

    fn claims(&self) -> Vec<Claim> {
        let stalled = self.stalled();
        let mut claims = vec![
            self.ready(stalled.as_ref()),
            self.reconciling(stalled.is_some()),
            match stalled {
                Some(trouble) => Claim::new(types::STALLED, true, trouble.reason, trouble.message),
                None => Claim::new(types::STALLED, false, reasons::AS_EXPECTED, ""),
            },
            self.suspended(),
            self.pool_ready(),
        ];
        claims.extend(self.agents_ready());
        claims.push(self.sampling());
        claims.extend(self.ending());
        claims
    }

    /// Why a person must act.
    fn stalled(&self) -> Option<Trouble> {
        let input = self.input;
        match self.course {
            Course::Wait(Some(trouble)) => return Some(trouble.clone()),
            Course::Settle(_) | Course::Stop(_) | Course::Over => return None,
            _ => {}
        }
        if let Some(trouble) = input.refusal.or(input.hindrance) {
            return Some(trouble.clone());
        }
        let driver = input.driver().and_then(|driver| driver.trouble.clone());
        // While agents run, what holds up the others is not the job's end.
        driver.or_else(|| self.agents_trouble().filter(|_| !self.agents_run()))
    }

    fn agents_run(&self) -> bool {
        let mut agents = self.input.observed.agents.iter();
        agents.any(|pod| pod.life == AgentLife::Running)
    }

    /// Why agents' Pods cannot be made, or none of them starts.
    fn agents_trouble(&self) -> Option<Trouble> {
        let observed = &self.input.observed;
        if let Some(refusal) = &observed.memory.refusal {
            return Some(refusal.trouble.clone());
        }
        if self.agents_run() {
            return None;
        }
        let mut troubled: Vec<_> = observed
            .agents
            .iter()
            .filter_map(|pod| Some((pod.holder, pod.trouble.as_ref()?)))
            .collect();
        troubled.sort_by_key(|(holder, _)| *holder);
        troubled.first().map(|(_, trouble)| (*trouble).clone())
    }

    fn ready(&self, stalled: Option<&Trouble>) -> Claim {
        let not = |reason, message: &str| Claim::new(types::READY, false, reason, message);
        if let Some(trouble) = stalled {
            return not(trouble.reason, &trouble.message);
        }
        if let Some(outcome) = self.end() {
            let (reason, message) = said(outcome);
            return Claim::new(types::READY, outcome.success, reason, message);
        }
        match self.phase() {
            Phase::Suspended => not(reasons::SUSPENDED, "the job is suspended"),
            Phase::Running => not(reasons::PROGRESSING, "the driver generates samples"),
            Phase::TearingDown => not(reasons::PROGRESSING, "the teardown runs"),
            Phase::Starting => match self.input.driver().and_then(|driver| driver.crash.as_ref()) {
                Some(crash) => {
                    let message = format!("the driver crashed and is started again: {crash}");
                    not(reasons::STARTING, &message)
                }
                None => not(reasons::STARTING, DRIVER_STARTS),
            },
            _ => not(reasons::STARTING, "the job waits for its pool"),
        }
    }

    fn reconciling(&self, stalled: bool) -> Claim {
        let is_at_rest = stalled || self.end().is_some() || self.phase() == Phase::Suspended;
        if is_at_rest {
            return Claim::new(types::RECONCILING, false, reasons::AS_EXPECTED, "");
        }
        Claim::new(
            types::RECONCILING,
            true,
            reasons::PROGRESSING,
            "the job is under way",
        )
    }

    fn suspended(&self) -> Claim {
        if self.phase() == Phase::Suspended {
            return Claim::new(
                types::SUSPENDED,
                true,
                reasons::SUSPENDED,
                "no pod of the job runs",
            );
        }
        let is_stopping = matches!(
            self.course,
            Course::Stop(Stop::Suspend) | Course::Settle(End::Suspended)
        );
        if is_stopping {
            return Claim::new(
                types::SUSPENDED,
                false,
                reasons::PROGRESSING,
                "the job's pods are ending",
            );
        }
        // Resumed, but not begun again: the next attempt must not look like this one.
        if self.input.was(types::SUSPENDED) && !matches!(self.course, Course::Begin(_)) {
            return Claim::new(
                types::SUSPENDED,
                true,
                reasons::RESUMED,
                "the job goes on when its pool can take its work",
            );
        }
        Claim::new(types::SUSPENDED, false, reasons::AS_EXPECTED, "")
    }

    fn pool_ready(&self) -> Claim {
        let (holds, reason, message) = match &self.input.observed.pool {
            PoolView::Missing => (
                false,
                reasons::REFERENCE_NOT_FOUND,
                "there is no such pool".to_owned(),
            ),
            PoolView::OutOfSight => (
                false,
                reasons::REFERENCE_NOT_FOUND,
                "the operator does not look at the pool's namespace".to_owned(),
            ),
            PoolView::NotAllowed => (
                false,
                reasons::POOL_NOT_ALLOWED,
                "the pool does not take jobs of this namespace".to_owned(),
            ),
            PoolView::Unready(why) => (false, reasons::STARTING, why.clone()),
            PoolView::Ready(_) => (true, reasons::AS_EXPECTED, "the pool takes work".to_owned()),
        };
        Claim::new(types::POOL_READY, holds, reason, message)
    }

    fn agents_ready(&self) -> Option<Claim> {
        self.input.agents()?;
        Some(match self.agents_trouble() {
            Some(trouble) => {
                Claim::new(types::AGENTS_READY, false, trouble.reason, trouble.message)
            }
            None => Claim::new(types::AGENTS_READY, true, reasons::AS_EXPECTED, ""),
        })
    }

    fn sampling(&self) -> Claim {
        let not = |reason, message| Claim::new(types::SAMPLING, false, reason, message);
        match self.course {
            // Once it was heard its Pod may go: the attempt is over.
            Course::Wait(_) | Course::Rest(_) if self.input.was_driver_heard() => {
                not(reasons::AS_EXPECTED, "the driver ended without a decision")
            }
            Course::Wait(_) | Course::Rest(_) => not(reasons::STARTING, "no driver runs"),
            // In the words of the look that makes it: the status is written once for both.
            Course::Begin(_) => not(reasons::STARTING, DRIVER_STARTS),
            Course::Run => match self.doing() {
                Some(Doing::Generating) => Claim::new(
                    types::SAMPLING,
                    true,
                    reasons::AS_EXPECTED,
                    "the driver generates samples",
                ),
                Some(_) => not(reasons::AS_EXPECTED, "the driver is done"),
                None => not(reasons::STARTING, DRIVER_STARTS),
            },
            Course::Stop(_) | Course::Settle(_) | Course::Over => {
                not(reasons::AS_EXPECTED, "the driver is done")
            }
        }
    }

    fn ending(&self) -> Vec<Claim> {
        let mut claims = Vec::new();
        let Course::Settle(End::Decided(outcome)) = self.course else {
            return claims;
        };
        let (reason, message) = said(outcome);
        if outcome.success && reason == reasons::TARGET_REACHED {
            let message = "every step has its groups";
            claims.push(Claim::new(types::TARGET_REACHED, true, reason, message));
        }
        if !self.is_settled() {
            claims.push(Claim::new(
                types::TEARDOWN_COMPLETE,
                false,
                reasons::PROGRESSING,
                "agents' pods are ending",
            ));
            return claims;
        }
        claims.push(self.teardown_complete());
        let about = if outcome.success {
            types::COMPLETE
        } else {
            types::FAILED
        };
        claims.push(Claim::new(about, true, reason, message));
        claims
    }

    fn teardown_complete(&self) -> Claim {
        let left = self.input.observed.agents.len();
        if left > 0 {
            let message = format!("{left} pods did not end in time: their nodes do not answer");
            return Claim::new(types::TEARDOWN_COMPLETE, true, reasons::ESCALATED, message);
        }
        let hook = self
            .facts
            .teardown
            .as_ref()
            .and_then(|teardown| teardown.hook);
        let reason = match hook {
            Some(HookResult::HookSucceeded) => reasons::HOOK_SUCCEEDED,
            Some(HookResult::HookFailed) => reasons::HOOK_FAILED,
            Some(HookResult::HookTimedOut) => reasons::HOOK_TIMED_OUT,
            Some(HookResult::NoHook) | None => reasons::NO_HOOK,
        };
        Claim::new(
            types::TEARDOWN_COMPLETE,
            true,
            reason,
            "nothing of the job runs",
        )
    }
}

/// Reason and message of an end. A driver of another version may have words that this one does not know.
fn said(outcome: &Outcome) -> (&'static str, String) {
    let known = reasons::ALL
        .iter()
        .find(|reason| **reason == outcome.reason);
    match known {
        Some(reason) => (reason, outcome.message.clone()),
        None if outcome.success => (
            reasons::TARGET_REACHED,
            format!("{}: {}", outcome.reason, outcome.message),
        ),
        None => (
            reasons::ERROR_BUDGET_EXCEEDED,
            format!("{}: {}", outcome.reason, outcome.message),
        ),
    }
}
