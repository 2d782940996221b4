//! Bodies of the control port.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// `POST /sessions`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CreateSession {
    /// The job that owns it.
    pub job: String,
    /// Step of the job.
    pub rollout_id: u32,
    /// What the agent gets.
    pub prompt: Value,
    /// What the agent gets as sampling defaults.
    pub request_kwargs: Map<String, Value>,
    /// What the router fills in or overrides.
    pub sampling: Value,
    /// Token budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_seq_len: Option<i64>,
    /// From the claim on.
    pub deadline_seconds: f64,
    /// Handed to the agent.
    pub metadata: Map<String, Value>,
    /// Into the assignment queue.
    pub assign: bool,
    /// In a process of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// The same key answers the same session.
    pub idempotency_key: String,
}

/// What launchers are told of an abort.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentAbort<'a> {
    /// For people.
    pub reason: &'a str,
    /// The `args` of the agents' hook.
    pub args: Value,
    /// How long the hook may take.
    pub hook: Duration,
    /// How long agents may take to end by themselves.
    pub drain: Duration,
}

impl AgentAbort<'_> {
    pub(super) fn terms(&self) -> Value {
        json!({
            "reason": self.reason,
            "timeout_seconds": self.hook.as_secs_f64(),
            "drain_seconds": self.drain.as_secs_f64(),
            "args": self.args,
        })
    }
}

/// Its answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CreatedSession {
    /// Its id.
    pub session_id: String,
    /// The router's process.
    #[serde(default)]
    pub session_server_instance_id: Option<String>,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// The agent ended by itself.
    Completed,
    /// The agent failed: the policy's fault.
    AgentFailed,
    /// It took too long.
    Deadline,
    /// Ended from outside.
    Aborted,
    /// The machinery failed.
    InfraFailed,
}

/// Why an engine did not answer the last turn that a session tried.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EngineFault {
    /// The router's stable code.
    pub code: String,
    /// For people.
    #[serde(default)]
    pub message: String,
}

/// One entry of `GET /outcomes`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Outcome {
    /// The session.
    pub session_id: String,
    /// How it ended.
    pub outcome: OutcomeKind,
    /// Exit code of the agent.
    #[serde(default)]
    pub exit_code: Option<i64>,
    /// Signal that ended the agent.
    #[serde(default)]
    pub signal: Option<Value>,
    /// What the agent returned.
    #[serde(default)]
    pub metadata: Option<Map<String, Value>>,
    /// What went wrong.
    #[serde(default)]
    pub error: Option<String>,
    /// The end of the agent's log.
    #[serde(default)]
    pub log_tail: Option<String>,
    /// Seconds that the agent ran.
    #[serde(default)]
    pub agent_seconds: Option<f64>,
    /// The last turn failed at its engine, and none was recorded after it.
    #[serde(default)]
    pub engine_fault: Option<EngineFault>,
}

/// `GET /outcomes`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct OutcomePage {
    /// The router's process; another one means that every session is gone.
    pub session_server_instance_id: String,
    /// What to ask after next.
    pub next: u64,
    /// Whether an agent of the job has ever been loaded; `None` when the router does not know such a thing.
    #[serde(default)]
    pub agents_loaded: Option<bool>,
    /// In the order in which sessions ended.
    pub outcomes: Vec<Outcome>,
}

/// `POST /fence`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct FenceAnswer {
    /// Sessions that were fenced.
    pub sessions: u64,
    /// Requests that were in flight.
    pub requests: u64,
    /// Requests that still are.
    pub left: u64,
    /// Requests whose end is not proven.
    pub unproven: u64,
    /// Per engine.
    pub engines: Vec<EngineAbort>,
}

/// What happened at one engine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct EngineAbort {
    /// Its address.
    pub url: String,
    /// Requests aborted there.
    pub aborted: u64,
    /// Why it did not work.
    pub error: Option<String>,
}

/// `POST /agent-abort`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct AbortAnswer {
    /// Launchers that were told.
    pub launchers: u64,
    /// Sessions that were ended.
    pub sessions: u64,
    /// Hooks by result.
    pub hooks: HookCounts,
    /// What went wrong.
    pub errors: Vec<String>,
}

/// Hooks by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct HookCounts {
    /// Ran.
    pub succeeded: u64,
    /// The agent has none.
    pub none: u64,
    /// Raised.
    pub failed: u64,
    /// Did not end in time.
    pub timed_out: u64,
}

/// `GET /status`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RouterStatus {
    /// The router's process.
    pub session_server_instance_id: String,
    /// Requests at engines.
    pub requests_in_flight: u64,
    /// The engines.
    pub engines: Vec<EngineState>,
    /// How engines are found by name, if they are.
    pub engine_service: Option<EngineServiceState>,
}

/// The name behind which engines are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct EngineServiceState {
    /// Host and port.
    pub name: String,
    /// What is wrong with its lookup.
    pub error: Option<String>,
}

/// One engine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct EngineState {
    /// Its address.
    pub url: String,
    /// It takes requests.
    pub healthy: bool,
}
