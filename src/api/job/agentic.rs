//! Samples from agents: sessions, tokens, pods.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agent::Agent;
use super::sandbox::Sandbox;
use crate::api::rules::{Rules, undescribed};
use crate::api::values::{EgressRule, NetworkPeer, Parameters, int};

/// An agent runs each sample against a session of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules)]
pub struct Agentic {
    /// The agent: a function, a container or a server.
    pub agent: Agent,
    /// What the agent works in, beside its own container; none: only its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// The plug-in's own flags: args of the agent's run and abort, and of reward and filter functions.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    /// Whose token ids a turn's prompt has. Recorded: SGLang tokenizes each turn anew, its ids are recorded. Inherited: those that the engine
    /// produced in earlier turns are used again. Default: Recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenMode>,
    /// Family of the chat template, for Inherited tokens (qwen3, glm47, ...). Default: default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = "^[a-z0-9_]+$"))]
    pub template_family: Option<String>,
    /// When a message that the agent sends again counts as the recorded one. Strict: role, content, reasoning and tool calls are equal.
    /// `LooseToolCall`: arguments of tool calls are compared as JSON. `RoleContentOnly`: only role and content. Default: Strict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_matcher: Option<MessageMatcher>,
    /// Whether a session is one line of turns (Linear) or a tree of branches (Tree). Default: Linear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// Which branches become samples: all but those that a retry superseded (`DropRetries`), or all (`KeepAll`). Default: `DropRetries`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_picker: Option<SamplePicker>,
    /// What happens to sampling parameters that the agent sends. Default: the job's fill in what it leaves out. Pin: the job's override them.
    /// Default: Default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_policy: Option<SamplingPolicy>,
    /// Tokens of a session at most, prompt and answers of all turns together; a longer one is cut there. None: maxContextTokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub max_sequence_tokens: Option<i32>,
    /// Longest time of a session, in seconds, from the moment an agent takes it; then it is ended, and what it has is scored. Default: 3600.
    #[serde(default = "int::<3600>")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub session_deadline_seconds: i32,
    /// Sessions that a Pod runs before it is replaced; 0: no limit. Default: 1.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub sessions_per_pod: i32,
    /// Sessions that run in a Pod at once, in one process. Default: 1.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub concurrent_sessions_per_pod: i32,
    /// The agent can go on with a half-done session: with rollout.partial it gets one again, with resume set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumable: bool,
    /// Hands the label to the agent, as `metadata['label']`; else an agent cannot see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expose_label: bool,
    /// Refuses turns without the session's own token as bearer; else the session id in the URL is enough.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_session_token: bool,
    /// Pods that are kept ready between sessions. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000))]
    pub warm_pods: i32,
    /// What agent Pods may reach, and who may reach them; none: the router and DNS, and nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<AgentNetworkPolicy>,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .field(
            "sandbox",
            "!has(self.sandbox) || !has(self.agent.server)",
            "an agent server keeps its own sandboxes, there are no agent Pods: remove sandbox, or use agent.function or agent.container",
        )
        .field(
            "warmPods",
            "!has(self.agent.server) || self.warmPods == 0",
            "an agent server needs no agent Pods: remove warmPods",
        )
        .field(
            "concurrentSessionsPerPod",
            "self.sessionsPerPod == 0 || self.concurrentSessionsPerPod <= self.sessionsPerPod",
            "a Pod ends after sessionsPerPod sessions: set sessionsPerPod to 0 (no limit), or to at least concurrentSessionsPerPod",
        )
        .field(
            "concurrentSessionsPerPod",
            "self.concurrentSessionsPerPod == 1 || has(self.agent.function)",
            "only agent.function runs several sessions in one process: remove concurrentSessionsPerPod, or use agent.function",
        )
        .field(
            "concurrentSessionsPerPod",
            "self.concurrentSessionsPerPod == 1 || !has(self.sandbox)",
            "sessions of one Pod would share its sandbox: remove concurrentSessionsPerPod, or sandbox",
        )
        .field(
            "templateFamily",
            "!has(self.templateFamily) || (has(self.tokens) && self.tokens == 'Inherited')",
            "templateFamily is for inherited tokens: set tokens: Inherited, or remove it",
        );
}

/// Whose token ids a turn's prompt has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum TokenMode {
    /// SGLang tokenizes each turn anew, and the ids are read from its answer.
    #[default]
    Recorded,
    /// The router renders the template and reuses the ids that the engine produced.
    Inherited,
}

/// When a replayed message is the recorded one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum MessageMatcher {
    /// Role, content, reasoning and tool calls are equal.
    #[default]
    Strict,
    /// Arguments of tool calls are compared as JSON.
    LooseToolCall,
    /// Only role and content are compared.
    RoleContentOnly,
}

/// The shape of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum History {
    /// One line of turns, as in version 1 of Miles's sessions.
    #[default]
    Linear,
    /// A tree of branches, as in version 2.
    Tree,
}

/// Which branches become samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum SamplePicker {
    /// All but those that a retry superseded.
    #[default]
    DropRetries,
    /// All.
    KeepAll,
}

/// What happens to sampling parameters that the agent sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum SamplingPolicy {
    /// The job's fill in what the agent leaves out.
    #[default]
    Default,
    /// The job's override what the agent sends.
    Pin,
}

/// What agent Pods may reach, and who may reach them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentNetworkPolicy {
    /// Rules beyond the router and DNS.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub egress: Vec<EgressRule>,
    /// Who may connect to agent Pods; none: nobody.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub allow_from: Vec<NetworkPeer>,
}
