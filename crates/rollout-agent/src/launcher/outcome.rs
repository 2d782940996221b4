//! How a session ended, for the router: pure.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::wire::{Ended, Fault, HookResult};

/// Longest error text, in bytes.
const MAX_ERROR: usize = 8 * 1024;

/// Why the launcher ended a session that had not ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its time was over.
    Deadline,
    /// The router said so.
    Aborted,
    /// The router does not know it any more: there is nobody to tell.
    Gone,
    /// The router was lost for longer than the heartbeat limit.
    RouterLost,
    /// The pod ends.
    Stopping,
}

/// The outcome classes of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Completed,
    AgentFailed,
    Deadline,
    Aborted,
    InfraFailed,
}

/// The report on the abort hook that ran for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct HookReport {
    pub(super) abort_id: String,
    pub(super) result: HookResult,
    pub(super) error: Option<String>,
}

/// The body of a result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SessionResult {
    pub(super) outcome: Outcome,
    pub(super) exit_code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) metadata: Map<String, Value>,
    pub(super) error: Option<String>,
    pub(super) log_tail: Option<String>,
    pub(super) agent_seconds: f64,
    pub(super) hook: Option<HookReport>,
    /// The process that ran the session can still run the hook of an abort.
    pub(super) runs_hooks: bool,
}

/// Puts together what the shim said and why the launcher ended the session.
pub(super) fn result(
    cause: Option<Cause>,
    ended: Ended,
    agent_seconds: f64,
    hook: Option<HookReport>,
) -> SessionResult {
    let outcome = classify(cause, &ended);
    let runs_hooks = cause.is_none() && hook.is_none() && ended.fault == Fault::Agent;
    let error = match (explain(cause, outcome), ended.error) {
        (Some(reason), Some(detail)) => Some(format!("{reason}: {detail}")),
        (Some(reason), None) => Some(reason.to_owned()),
        (None, detail) => detail,
    };
    SessionResult {
        outcome,
        exit_code: ended.exit_code,
        signal: ended.signal,
        metadata: ended.result.unwrap_or_default(),
        error: error.map(|text| bounded(&text)),
        log_tail: ended.log_tail,
        agent_seconds,
        hook,
        runs_hooks,
    }
}

/// An agent that ended well while an abort drained has completed, whatever the abort wanted.
fn classify(cause: Option<Cause>, ended: &Ended) -> Outcome {
    match cause {
        Some(Cause::Deadline) => Outcome::Deadline,
        _ if ended.is_well() => Outcome::Completed,
        Some(Cause::Aborted | Cause::Gone) => Outcome::Aborted,
        Some(Cause::RouterLost | Cause::Stopping) => Outcome::InfraFailed,
        None if ended.fault == Fault::Infra => Outcome::InfraFailed,
        None => Outcome::AgentFailed,
    }
}

fn explain(cause: Option<Cause>, outcome: Outcome) -> Option<&'static str> {
    match (outcome, cause) {
        (Outcome::Deadline, _) => Some("the session's deadline passed"),
        (Outcome::Aborted, _) => Some("the session was aborted"),
        (Outcome::InfraFailed, Some(Cause::RouterLost)) => {
            Some("the router was lost for longer than three heartbeats")
        }
        (Outcome::InfraFailed, Some(Cause::Stopping)) => Some("the agent pod was told to end"),
        _ => None,
    }
}

/// Keeps the end of a text, where a traceback says what happened.
pub(super) fn bounded(text: &str) -> String {
    if text.len() <= MAX_ERROR {
        return text.to_owned();
    }
    let mut start = text.len() - MAX_ERROR + 16;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    format!("... {}", &text[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit_code: Option<i32>, error: Option<&str>) -> Ended {
        Ended {
            exit_code,
            error: error.map(str::to_owned),
            clean: true,
            ..Ended::default()
        }
    }

    #[test]
    fn the_agents_end_decides_when_nobody_ended_it() {
        assert_eq!(classify(None, &ended(Some(0), None)), Outcome::Completed);
        assert_eq!(classify(None, &ended(Some(3), None)), Outcome::AgentFailed);
        assert_eq!(
            classify(None, &ended(None, Some("died"))),
            Outcome::AgentFailed
        );
        assert_eq!(
            classify(None, &Ended::infra("s", "lost")),
            Outcome::InfraFailed
        );
    }

    #[test]
    fn an_agent_that_ends_well_while_an_abort_drains_has_completed() {
        for cause in [Cause::Aborted, Cause::RouterLost, Cause::Stopping] {
            assert_eq!(
                classify(Some(cause), &ended(Some(0), None)),
                Outcome::Completed
            );
        }
        assert_eq!(
            classify(Some(Cause::Aborted), &ended(Some(1), Some("410"))),
            Outcome::Aborted
        );
    }

    #[test]
    fn a_deadline_is_a_deadline() {
        assert_eq!(
            classify(Some(Cause::Deadline), &ended(Some(0), None)),
            Outcome::Deadline
        );
    }

    #[test]
    fn a_lost_router_and_a_stopping_pod_are_infrastructure() {
        for cause in [Cause::RouterLost, Cause::Stopping] {
            let result = result(Some(cause), ended(None, None), 1.0, None);
            assert_eq!(result.outcome, Outcome::InfraFailed);
            assert!(result.error.is_some());
        }
    }

    #[test]
    fn a_long_error_keeps_its_end() {
        let text = format!("{}ä the reason", "ä".repeat(MAX_ERROR));
        let short = bounded(&text);
        assert!(short.len() <= MAX_ERROR);
        assert!(short.ends_with("the reason"));
    }
}
