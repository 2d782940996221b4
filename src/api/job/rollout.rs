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
    /// Steps of the job; each keeps batchSize groups and writes an output of its own. Default: 1.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub steps: i32,
    /// Generation runs on across steps; none: each step waits for its groups, and what is unfinished is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asynchronous: Option<Asynchronous>,
    /// Groups that a step keeps; a group is the samples of one prompt.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub batch_size: i32,
    /// Samples of each prompt: the size of a group. Default: 1.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 1, max = 10_000))]
    pub samples_per_prompt: i32,
    /// Takes more groups than a step keeps, so that the slowest and the filtered ones do not hold it up; when enough are kept, the surplus is
    /// aborted. None: groups are taken one by one, as many as are still needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_sampling: Option<OverSampling>,
    /// Which finished groups are kept; none: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// What becomes of groups that were not finished when the step had enough; none: their prompts are taken again from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
    /// How much runs at once.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// Longest time of one /generate request of the job, in seconds, waiting in the engine's queue included; a request that takes longer is
    /// aborted, and its sample is run again as after any failure of an engine. Requests of an agent have sessionDeadlineSeconds instead. May be
    /// changed while the job runs. Default: 3600.
    #[serde(default = "int::<3600>")]
    #[schemars(range(min = 1, max = 86_400))]
    pub request_timeout_seconds: i32,
    /// How much may fail before the job fails with `ErrorBudgetExceeded`.
    #[serde(default)]
    pub error_budget: ErrorBudget,
    /// Python functions at fixed places of the loop, with Miles's signatures.
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
    /// Weight versions that a group may be behind when a step takes it; none: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_staleness_versions: Option<i32>,
    /// Finished groups that wait for a step. Default: twice batchSize.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub queue_groups: Option<i32>,
    /// What becomes of groups that are too old. Drop: they are counted and left out. Retry: their prompts are taken again. Default: Drop.
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
    /// Groups that are taken at a time, at least rollout.batchSize.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub batch_size: i32,
    /// What is counted when more work is started: unfinished groups, or unfinished samples. Default: Group.
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
    /// The test that a group must pass. None: every group does. `NonzeroRewardStd`: its rewards are not all alike. `NoAborted`: none of its samples was
    /// aborted. Plugin: what a Python function says.
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
    /// Keeps what was generated, and goes on with it in the next step. Of agents only those that are resumable go on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,
    /// Gives tokens of an older policy loss mask 0.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mask_off_policy: bool,
}

/// How much runs at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Concurrency {
    /// Agent sessions at once. Default: 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub sessions: Option<i32>,
    /// Requests of a job without agents at one engine at once; times the number of engines, they bound what is in flight. Default: 512.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests_per_engine: Option<i32>,
}

/// How much may fail before the job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ErrorBudget {
    /// Infrastructure incidents over the whole job: engine failures, lost sessions, samples that could not be started again. All samples that
    /// fail of one cause and were in flight when it first showed are one incident, however many; a refill that fails again is the next one. What
    /// no engine took, because none could be reached or all were full, is no incident. One more than this ends the job. Default: 100.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub infra_failures: i32,
    /// Groups that may fail one after the other, with none finished in between; those that were in work together and may not fail again count
    /// once. The same number of samples in a row that cannot be started (an agent that cannot be imported) ends the job too, and so do as many
    /// times in a row that no engine serves anything: with pauses that double from 1 s to 30 s, an outage of 5.5 minutes. Default: 16.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub consecutive_group_failures: i32,
    /// Rows of the data set that may be unusable (no JSON, no prompt, no label); they are left out. One more ends the job. Default: 0.
    #[schemars(range(min = 0, max = 10_000_000))]
    pub bad_rows: i32,
    /// Times that the prompt of a failed group is taken again before the group counts as failed. Default: 1.
    #[schemars(range(min = 0, max = 1000))]
    pub retries_per_group: i32,
    /// Times that one sample is run again after an infrastructure failure; then its group has failed. Those that no engine took do not count.
    /// Default: 3.
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
    /// Chooses which recycled groups are taken first (--buffer-filter-path).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_filter: Option<PluginRef>,
    /// Sees the kept groups of a step (--rollout-sample-filter-path).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_filter: Option<PluginRef>,
    /// Sees every group of a step, dropped ones included (--rollout-all-samples-process-path).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_samples_process: Option<PluginRef>,
    /// Logs a step (--custom-rollout-log-function-path).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<PluginRef>,
    /// Logs an evaluation (--custom-eval-rollout-log-function-path).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation_log: Option<PluginRef>,
}
