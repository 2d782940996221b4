//! What there is of a job: its pool, its Pods, what its driver says.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::report::{Facts, Report};
use crate::plan::pool::Trouble;

/// Everything that is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The pool.
    pub pool: PoolView,
    /// Drivers' Pods, of all attempts.
    pub drivers: Vec<DriverPod>,
    /// What the driver of the current attempt said last; none: nothing yet.
    pub report: Option<Report>,
    /// Agents' Pods, of all attempts.
    pub agents: Vec<AgentPod>,
    /// What this process remembers about agents' Pods.
    pub memory: Memory,
}

/// What a process remembers about agents' Pods of the current attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The highest generation that was seen, by slot.
    pub highest: BTreeMap<u32, u32>,
    /// Ends that the driver was told of.
    pub told: BTreeSet<Holder>,
    /// Pods that get no session any more: there were more than were needed.
    pub retired: BTreeSet<Holder>,
    /// There are more than are needed.
    pub surplus: Option<Surplus>,
    /// The API server refused the last Pods; none: it took them.
    pub refusal: Option<AgentsRefusal>,
}

/// More agents' Pods than are needed, at every look for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surplus {
    /// Since when.
    pub since: Timestamp,
    /// By how many at least: sessions end and begin all the time, and the demand of one moment is not what is needed.
    pub fewest: usize,
}

/// The API server refuses agents' Pods: a quota, mostly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentsRefusal {
    /// Why.
    pub trouble: Trouble,
    /// When it refused last.
    pub at: Timestamp,
    /// How often in a row.
    pub times: u32,
}

/// An agent's Pod: slot and generation.
pub type Holder = (u32, u32);

/// The pool of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PoolView {
    /// There is none of that name, or it is being deleted.
    #[default]
    Missing,
    /// It does not allow the job's namespace.
    NotAllowed,
    /// The operator does not look at its namespace.
    OutOfSight,
    /// No engine takes work; in words.
    Unready(String),
    /// So many engines take work.
    Ready(i32),
}

/// A driver's Pod.
#[derive(Clone, Debug, PartialEq)]
pub struct DriverPod {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The attempt.
    pub attempt: i32,
    /// Version of the operator that made it; none: it does not say.
    pub version: Option<String>,
    /// Its address.
    pub address: Option<String>,
    /// When it was made.
    pub created: Timestamp,
    /// By when it has to be gone, once it is being deleted.
    pub leaving: Option<Timestamp>,
    /// Whether it was evicted, preempted, or lost with its node.
    pub is_disrupted: bool,
    /// Whether it is held until its last word is in the job's status.
    pub is_held: bool,
    /// How often its driver was started again in place.
    pub restarts: i32,
    /// What the last start said that crashed; none: none did, or it could not say.
    pub crash: Option<String>,
    /// Where it is in its life.
    pub life: DriverLife,
    /// Why it does not start, when a person must act.
    pub trouble: Option<Trouble>,
}

/// Where a driver is in its life.
#[derive(Clone, Debug, PartialEq)]
pub enum DriverLife {
    /// It has not started.
    Starting,
    /// It runs, or is about to be started again.
    Running,
    /// It ended and does not start again. Without its last word nobody knows how.
    Ended(Option<Box<Facts>>),
}

/// An agent's Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPod {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The attempt that it works for.
    pub attempt: i32,
    /// Slot and generation.
    pub holder: Holder,
    /// By when it has to be gone, once it is being deleted.
    pub leaving: Option<Timestamp>,
    /// Where it is in its life.
    pub life: AgentLife,
    /// What happened in it that was not its agent's doing.
    pub fault: Option<PodEnd>,
    /// Why it does not start, when a person must act.
    pub trouble: Option<Trouble>,
}

/// Why a Pod of agents runs no session any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnd {
    /// What the driver makes of it.
    pub cause: EndCause,
    /// In the words of Kubernetes.
    pub reason: String,
}

/// What a driver makes of the end of an agent's Pod (docs/protocol.md section 1, pod-ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// It ended.
    Ended,
    /// The memory limit of the agent's container was used up.
    OutOfMemory,
    /// A container that the agent works in was started again.
    SandboxFailed,
}

impl EndCause {
    /// The word on the wire; none: there is nothing more to say than the reason.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Ended => None,
            Self::OutOfMemory => Some("out_of_memory"),
            Self::SandboxFailed => Some("sandbox_failed"),
        }
    }
}

/// Where an agent's Pod is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentLife {
    /// It has not started.
    Starting,
    /// It runs.
    Running,
    /// It ended.
    Ended {
        /// Whether it failed.
        failed: bool,
        /// When.
        at: Option<Timestamp>,
        /// In the words of Kubernetes.
        reason: String,
    },
}

impl DriverPod {
    /// Whether it can still do something.
    pub fn is_alive(&self) -> bool {
        !matches!(self.life, DriverLife::Ended(_))
    }
}

impl AgentPod {
    /// Why it runs no session any more.
    pub fn end(&self) -> Option<PodEnd> {
        let ended = || match &self.life {
            AgentLife::Ended { reason, .. } => Some(PodEnd {
                cause: EndCause::Ended,
                reason: reason.clone(),
            }),
            AgentLife::Starting | AgentLife::Running => None,
        };
        self.fault.clone().or_else(ended)
    }

    /// Whether it can still take or run a session.
    pub fn is_alive(&self) -> bool {
        !matches!(self.life, AgentLife::Ended { .. })
    }
}
