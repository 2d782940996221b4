//! How a session lives and ends. Pure: the time is passed in.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::auth::Holder;
use crate::config::Times;

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The agent ended by itself.
    Completed,
    /// The agent failed; that is a result.
    AgentFailed,
    /// The session's time was over.
    Deadline,
    /// Ended from outside.
    Aborted,
    /// Nobody's fault but ours: the sample is run again.
    InfraFailed,
}

impl Outcome {
    /// Whether the agent ran, and what it made of the session counts.
    pub(crate) fn is_result(self) -> bool {
        match self {
            Self::Completed | Self::AgentFailed | Self::Deadline => true,
            Self::Aborted | Self::InfraFailed => false,
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::AgentFailed => "agent_failed",
            Self::Deadline => "deadline",
            Self::Aborted => "aborted",
            Self::InfraFailed => "infra_failed",
        }
    }
}

/// Who runs the session's agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) holder: Holder,
    pub(crate) claimed_at: Instant,
    pub(crate) heartbeat_at: Instant,
}

/// Where a session is in its life.
///
/// ```text
///   Open -----------------------------> (deleted)
///   Queued --claim--> Assigned --> Ended --> (deleted)
/// ```
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    /// For whoever has its id.
    Open,
    /// Waits for a launcher.
    Queued,
    /// A launcher runs its agent.
    Assigned(Assignment),
    /// Has its result; nothing is recorded any more.
    Ended(Outcome),
}

impl Phase {
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Queued => "queued",
            Self::Assigned(_) => "assigned",
            Self::Ended(_) => "ended",
        }
    }
}

/// Why the time of a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Nobody used it.
    Idle,
    /// Its launcher is silent.
    NoHeartbeat,
    /// It outlived its deadline.
    Deadline,
}

/// What is known about a session when its time is looked at.
#[derive(Debug)]
pub(crate) struct Clocks<'a> {
    pub(crate) phase: &'a Phase,
    pub(crate) created_at: Instant,
    pub(crate) last_activity: Instant,
    pub(crate) busy: bool,
    pub(crate) deadline: Option<Duration>,
}

/// Whether the time of a session is over at `now`.
pub(crate) fn due(clocks: &Clocks<'_>, times: &Times, now: Instant) -> Option<Expiry> {
    let passed = |since: Instant, limit: Duration| now.saturating_duration_since(since) > limit;
    let deadline = clocks.deadline.map(|limit| limit + times.deadline_grace);
    match clocks.phase {
        Phase::Queued => None,
        Phase::Assigned(assignment) => {
            if passed(assignment.heartbeat_at, times.heartbeat * 3) {
                return Some(Expiry::NoHeartbeat);
            }
            deadline
                .is_some_and(|limit| passed(assignment.claimed_at, limit))
                .then_some(Expiry::Deadline)
        }
        Phase::Open | Phase::Ended(_) => {
            if matches!(clocks.phase, Phase::Open)
                && deadline.is_some_and(|limit| passed(clocks.created_at, limit))
            {
                return Some(Expiry::Deadline);
            }
            (!clocks.busy && passed(clocks.last_activity, times.session_idle))
                .then_some(Expiry::Idle)
        }
    }
}
