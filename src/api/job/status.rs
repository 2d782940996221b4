//! What the operator reports about a job. Bounded, free of clocks but for start and end, written only when it changed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize};

use crate::api::rules::undescribed;
use crate::api::values::long;

/// State of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutJobStatus {
    /// Generation of the spec that the rest is about; -1: not seen yet.
    #[serde(default = "long::<-1>")]
    pub observed_generation: i64,
    /// The whole in a word, for people; programs read conditions.
    #[serde(
        default,
        deserialize_with = "known",
        skip_serializing_if = "Option::is_none"
    )]
    pub phase: Option<Phase>,
    /// Which start of the driver this is, from 1.
    #[serde(default)]
    pub attempt: i32,
    /// When the first attempt started. From then on most of the spec is frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the job ended, either way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// rerunId of the run that the rest is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerun_id: Option<String>,
    /// What holds; keyed by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// What the driver reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What the teardown ladder did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub teardown: Option<TeardownStatus>,
    /// What was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<WrittenOutput>,
    /// The last 16 kinds of failure, with their counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["reason"])
    )]
    pub recent_failures: Vec<Failure>,
    /// Texts for the columns of kubectl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<JobDisplay>,
}

impl Default for RolloutJobStatus {
    fn default() -> Self {
        Self {
            observed_generation: -1,
            phase: None,
            attempt: 0,
            start_time: None,
            completion_time: None,
            rerun_id: None,
            conditions: Vec::new(),
            progress: None,
            teardown: None,
            output: None,
            recent_failures: Vec::new(),
            display: None,
        }
    }
}

/// A word that this version does not know is none: an object that a later version wrote must not be unreadable for that.
fn known<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let word = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(word.and_then(|word| T::deserialize(word).ok()))
}

/// The whole in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum Phase {
    /// Not started.
    Pending,
    /// Pods are starting.
    Starting,
    /// Samples are generated.
    Running,
    /// The ladder is running.
    TearingDown,
    /// Ended with its samples.
    Succeeded,
    /// Ended without.
    Failed,
    /// Stopped by suspend.
    Suspended,
}

/// What the driver reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// The step, from 0.
    pub step: i32,
    /// Groups of the step.
    pub groups: GroupCounts,
    /// Sessions, over the job.
    pub sessions: SessionCounts,
    /// Tokens, over the job.
    pub tokens: TokenCounts,
    /// Mean reward of the kept samples, as a decimal number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward_mean: Option<String>,
}

/// Groups by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupCounts {
    /// Groups that the step wants: rollout.batchSize.
    pub target: i64,
    /// Groups that passed the filter and are in the output.
    pub kept: i64,
    /// Dropped by the filter.
    pub filtered: i64,
    /// Groups that are being generated or scored.
    pub in_flight: i64,
    /// Put back, to be taken again.
    pub recycled: i64,
    /// Failed for good.
    pub failed: i64,
    /// Lost with a driver.
    pub lost: i64,
}

/// Sessions by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionCounts {
    /// Sessions that wait for an agent or have one.
    pub active: i64,
    /// Ended by themselves.
    pub completed: i64,
    /// Ended at a budget.
    pub truncated: i64,
    /// Ended by the ladder.
    pub aborted: i64,
    /// Ended by the agent's own fault.
    pub agent_failed: i64,
    /// Ended by a fault of the infrastructure, and run again.
    pub infra_failed: i64,
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenCounts {
    /// Tokens that engines generated.
    pub generated: i64,
    /// Tokens that were generated and are not in the output.
    pub discarded: i64,
    /// Prompt tokens that came from the prefix cache.
    pub cached: i64,
}

/// What the teardown ladder did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TeardownStatus {
    /// Sessions that were open at the fence.
    pub fenced_sessions: i64,
    /// Requests that were aborted at engines.
    pub aborted_requests: i64,
    /// How the agent's abort hook ended.
    #[serde(deserialize_with = "known", skip_serializing_if = "Option::is_none")]
    pub hook: Option<HookResult>,
    /// Agent Pods that were deleted.
    pub pods_deleted: i64,
    /// How long the drain took.
    pub drain_millis: i64,
    /// Requests and sessions whose end is not proven.
    pub stragglers: i64,
}

/// How the agent's abort hook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum HookResult {
    /// It ran.
    HookSucceeded,
    /// It raised, or answered with an error.
    HookFailed,
    /// It did not end in time.
    HookTimedOut,
    /// The agent has none, or the job has no agent.
    NoHook,
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WrittenOutput {
    /// Where the files are; on a volume as `pvc://claim/path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Samples in all files.
    pub samples: i64,
    /// Files, manifest.json not counted.
    pub files: i64,
}

/// A kind of failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// A stable word.
    pub reason: String,
    /// What a person needs to know, without names of Pods.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How often it happened.
    pub count: i64,
}

/// Texts for the columns of `kubectl get`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobDisplay {
    /// Kept and wanted groups, as in 20/32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<String>,
    /// The pool, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}
