//! `spec.rollout`: the batch loop.

use serde::Deserialize;

/// The batch loop.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Rollouts in this job.
    #[serde(default = "one")]
    pub steps: u32,
    /// Kept groups per step.
    pub batch_size: u32,
    /// Samples per group.
    #[serde(default = "one")]
    pub samples_per_prompt: u32,
    /// Take more groups than needed.
    #[serde(default)]
    pub over_sampling: Option<OverSampling>,
    /// Dynamic sampling.
    #[serde(default)]
    pub filter: Option<FilterSpec>,
    /// Reuse of aborted work.
    #[serde(default)]
    pub partial: Option<Partial>,
    /// How much runs at once.
    #[serde(default)]
    pub concurrency: Concurrency,
    /// When failures end the job.
    #[serde(default)]
    pub error_budget: ErrorBudget,
    /// Deadline of one `/generate` request.
    #[serde(default = "an_hour")]
    pub request_timeout_seconds: u32,
}

/// What [`Rollout::request_timeout_seconds`] may be.
pub(super) const REQUEST_TIMEOUT: std::ops::RangeInclusive<u32> = 1..=86_400;

fn an_hour() -> u32 {
    3600
}

fn one() -> u32 {
    1
}

/// Oversampling.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverSampling {
    /// Groups taken at once.
    pub batch_size: u32,
    /// `Group` or `Sample`.
    #[serde(default)]
    pub granularity: Option<GranularitySpec>,
}

/// When the next batch is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum GranularitySpec {
    /// By pending groups.
    #[default]
    Group,
    /// By samples in flight.
    Sample,
}

/// Which groups are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FilterSpec {
    /// The kind.
    #[serde(rename = "type")]
    pub kind: FilterType,
    /// `module.function` of a plug-in filter.
    pub plugin: Option<String>,
}

/// The kinds of filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum FilterType {
    /// All.
    #[default]
    None,
    /// Groups whose rewards differ.
    NonzeroRewardStd,
    /// Groups without aborted samples.
    NoAborted,
    /// The user's function.
    Plugin,
}

/// Reuse of aborted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Partial {
    /// Resume it in the next step.
    pub enabled: bool,
    /// Do not train on what an older policy generated.
    pub mask_off_policy: bool,
}

/// How much runs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Concurrency {
    /// Sessions of agents.
    pub sessions: Option<u32>,
    /// Requests per engine.
    pub requests_per_engine: Option<u32>,
}

/// When failures end the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ErrorBudget {
    /// Infrastructure incidents.
    pub infra_failures: u32,
    /// Failed groups in a row.
    pub consecutive_group_failures: u32,
    /// Bad rows of the data set.
    pub bad_rows: u32,
    /// Further takes of a failed group.
    pub retries_per_group: u32,
    /// Further executions of a failed sample.
    pub retries_per_sample: u32,
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
