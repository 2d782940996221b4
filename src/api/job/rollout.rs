//! The batch loop: how many groups are made, which are kept, what failure costs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plugins::PluginRef;
use crate::api::rules::{Rules, undescribed};
use crate::api::values::int;

/// What one job produces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules)]
pub struct Rollout {
    /// Rollouts in this job; each yields batchSize groups.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub steps: i32,
    /// Generation runs on across steps; none: each step waits for its groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asynchronous: Option<Asynchronous>,
    /// Groups that a step keeps.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub batch_size: i32,
    /// Samples of each prompt: the size of a group.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub samples_per_prompt: i32,
    /// Starts more groups than a step keeps; the surplus is aborted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_sampling: Option<OverSampling>,
    /// Which groups are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// What becomes of groups that were not finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
    /// How much runs at once.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// Longest time of one /generate request of the job, in seconds, waiting in the engine's queue included; a request that takes longer is
    /// aborted, and its sample is run again as after any failure of an engine. Requests of an agent have sessionDeadlineSeconds instead. May be
    /// changed while the job runs.
    #[serde(default = "int::<3600>")]
    #[schemars(range(min = 1, max = 86_400))]
    pub request_timeout_seconds: i32,
    /// How much may fail.
    #[serde(default)]
    pub error_budget: ErrorBudget,
    /// Python functions at fixed places of the loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Hooks>,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .field(
            "overSampling.batchSize",
            "!has(self.overSampling) || self.overSampling.batchSize >= self.batchSize",
            "overSampling.batchSize is how many groups are started for batchSize kept ones: make it at least batchSize",
        )
        .field(
            "partial",
            "!has(self.asynchronous) || !(has(self.partial) && has(self.partial.enabled) && self.partial.enabled)",
            "an asynchronous rollout never aborts its groups: remove partial",
        );
}

/// Generation that runs on across steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Asynchronous {
    /// Weight versions that a group may be behind when a step takes it; none: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_staleness_versions: Option<i32>,
    /// Finished groups that wait for a step. Default: twice batchSize.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub queue_groups: Option<i32>,
    /// What becomes of groups that are too old. Default: Drop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_groups: Option<StaleGroups>,
}

/// What becomes of groups that are too old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum StaleGroups {
    /// They are dropped and counted.
    #[default]
    Drop,
    /// Their prompts are taken again.
    Retry,
}

/// More groups than a step keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverSampling {
    /// Groups that are taken at a time.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub batch_size: i32,
    /// What is counted when more work is started. Default: Group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Granularity>,
}

/// What is counted when more work is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum Granularity {
    /// Unfinished groups.
    #[default]
    Group,
    /// Unfinished samples.
    Sample,
}

/// Which groups are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = filter_rules)]
pub struct Filter {
    /// The test.
    #[serde(rename = "type")]
    pub type_: FilterType,
    /// The function of type Plugin: (args, group) to {keep, reason}.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginRef>,
}

fn filter_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).field(
        "plugin",
        "has(self.plugin) == (self.type == 'Plugin')",
        "type Plugin needs plugin: module.function, and no other type has one",
    );
}

/// A test that a finished group must pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum FilterType {
    /// Every group is kept.
    #[default]
    None,
    /// Groups whose rewards are all alike teach nothing.
    NonzeroRewardStd,
    /// Groups with an aborted sample are dropped.
    NoAborted,
    /// A Python function decides.
    Plugin,
}

/// What becomes of groups that were not finished when the step was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Partial {
    /// Keeps what was generated, and goes on with it in the next step.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,
    /// Does not train on tokens of an older policy.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mask_off_policy: bool,
}

/// How much runs at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Concurrency {
    /// Agent sessions at once; none: what over-sampling starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub sessions: Option<i32>,
    /// Requests at one engine at once. Default: 512.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests_per_engine: Option<i32>,
}

/// How much may fail before the job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ErrorBudget {
    /// Samples lost to the infrastructure, over the whole job.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub infra_failures: i32,
    /// Groups that fail one after the other.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub consecutive_group_failures: i32,
    /// Rows of the data set that cannot be used.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub bad_rows: i32,
    /// Times that the prompts of a failed group are taken again.
    #[schemars(range(min = 0, max = 1000))]
    pub retries_per_group: i32,
    /// Times that one sample is run again after an infrastructure failure.
    #[schemars(range(min = 0, max = 1000))]
    pub retries_per_sample: i32,
}

impl Default for ErrorBudget {
    fn default() -> Self {
        Self {
            infra_failures: 100,
            consecutive_group_failures: 16,
            bad_rows: 0,
            retries_per_group: 1,
            retries_per_sample: 3,
        }
    }
}

/// Python functions at fixed places of the loop, with Miles's signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Hooks {
    /// Which recycled groups are taken first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_filter: Option<PluginRef>,
    /// Sees the kept groups of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_filter: Option<PluginRef>,
    /// Sees every group of a step, dropped ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_samples_process: Option<PluginRef>,
    /// Logs a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<PluginRef>,
    /// Logs an evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation_log: Option<PluginRef>,
}
