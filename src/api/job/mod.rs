//! `RolloutJob`: prompts in, training samples out.

mod agent;
mod agentic;
mod dataset;
mod driver;
mod evaluation;
mod freeze;
mod generate;
mod output;
mod plugins;
mod pool_ref;
mod reward;
mod rollout;
mod sampling;
mod sandbox;
mod status;
mod trainer;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pool::SGLangPoolSpec;
use super::rules::{Rules, undescribed};
use super::values::int;

pub use agent::{Agent, AgentContainer, AgentFunction, AgentServer, ContainerAbort, ExecAction};
pub use agentic::{
    AgentNetworkPolicy, Agentic, History, MessageMatcher, SamplePicker, SamplingPolicy, TokenMode,
};
pub use dataset::{Dataset, DatasetFormat, DatasetPlugin, MultimodalKeys};
pub use driver::{Driver, Ledger};
pub use evaluation::{Evaluation, EvaluationDataset};
#[cfg(test)]
pub(crate) use freeze::fields as fields_by_freedom;
pub(crate) use freeze::{freeze_rules, is_free};
pub use generate::{
    Benchmark, CustomGenerate, Generate, MultiTurn, SingleTurn, TokenRange, ToolExecutor, ToolSpecs,
};
pub use output::{Compression, Output, OutputFormat};
pub use plugins::{PluginRef, Plugins};
pub use pool_ref::PoolRef;
pub use reward::{RemoteReward, Reward, RewardPlugin, RewardType, Verifier};
pub use rollout::{
    Asynchronous, Concurrency, ErrorBudget, Filter, FilterType, Granularity, Hooks, OverSampling,
    Partial, Rollout, StaleGroups,
};
pub(crate) use sampling::LOGPROBS_OF_THE_PROMPT;
pub use sampling::{Sampling, SamplingOverride};
pub use sandbox::{ClaimTemplateRef, ImageFrom, Sandbox};
pub use status::{
    Failure, GroupCounts, HookResult, JobDisplay, Phase, Progress, RolloutJobStatus, SessionCounts,
    TeardownStatus, TokenCounts, WrittenOutput,
};
pub use trainer::{Replay, Teardown, Trainer};

/// A rollout: prompts in, training samples out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules)]
#[kube(
    group = "rollout-operator.dev",
    version = "v1alpha1",
    kind = "RolloutJob",
    plural = "rolloutjobs",
    singular = "rolloutjob",
    shortname = "rj",
    category = "rollouts",
    namespaced,
    status = "RolloutJobStatus",
    derive = "PartialEq",
    doc = "A rollout: prompts in, training samples out.",
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Groups","type":"string","jsonPath":".status.display.groups","description":"kept / target"}"#,
    printcolumn = r#"{"name":"Sessions","type":"integer","jsonPath":".status.progress.sessions.active"}"#,
    printcolumn = r#"{"name":"Pool","type":"string","jsonPath":".status.display.pool"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct RolloutJobSpec {
    /// Ends the running attempt through the teardown ladder; the job goes on when it is removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// Who reconciles the job; another value than rollout-operator.dev/controller means hands off. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub managed_by: Option<String>,
    /// The SGLangPool that generates, by name; or write pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<PoolRef>,
    /// A pool of the job's own, in place of poolRef: its fields are those of SGLangPool's spec (kubectl explain sglangpool.spec). It comes and goes with the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<SGLangPoolSpec>,
    /// Where prompts come from.
    pub dataset: Dataset,
    /// How many groups of samples are made, and which are kept.
    pub rollout: Rollout,
    /// Sampling parameters of every request.
    #[serde(default)]
    pub sampling: Sampling,
    /// Longest prompt and answer together, in tokens: an answer gets at most what the prompt leaves, and sampling.maxNewTokens. For agents, the default of maxSequenceTokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub max_context_tokens: Option<i32>,
    /// Payloads that are recorded for the trainer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// Evaluation between steps; none: no evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<Evaluation>,
    /// How new weights come in between steps; none: they stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trainer: Option<Trainer>,
    /// How one sample is generated.
    pub generate: Generate,
    /// The Python plug-in host beside the driver: rewards and filters of type Plugin run in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugins: Option<Plugins>,
    /// How a sample is scored.
    #[serde(default)]
    pub reward: Reward,
    /// Where samples are written. rollout-operator local writes to its own --output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// Deadlines of the teardown ladder.
    #[serde(default)]
    pub teardown: Teardown,
    /// The driver's Pod.
    #[serde(default)]
    pub driver: Driver,
    /// Attempts of the driver that may crash before the job fails with `BackoffLimitExceeded`. Default: 3.
    #[serde(default = "int::<3>")]
    #[schemars(range(min = 0, max = 1000))]
    pub backoff_limit: i32,
    /// Longest time from start to end, in seconds; then the job fails with `DeadlineExceeded`, and what is kept is written. None: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub active_deadline_seconds: Option<i32>,
    /// Longest time until the first sample is generated, in seconds: ends a job whose pods cannot start. None: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub pre_running_deadline_seconds: Option<i32>,
    /// Time after the end when cleanup happens, in seconds; none: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// What is deleted ttlSecondsAfterFinished after the end: what the job created (Children), the job too (Self), or nothing (None). Default: Children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleanup: Option<Cleanup>,
    /// Change it to run a finished job again; each value writes a folder of its own.
    #[serde(default)]
    #[schemars(
        length(max = 63),
        regex(pattern = "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$")
    )]
    pub rerun_id: String,
}

/// What is deleted after the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum Cleanup {
    /// What the job created.
    #[default]
    Children,
    /// The job too.
    #[serde(rename = "Self")]
    Job,
    /// Nothing.
    None,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .exactly_one(
            &["poolRef", "pool"],
            "set exactly one of poolRef (a SGLangPool by name) and pool (a pool of the job's own)",
        )
        .field(
            "managedBy",
            "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
            "managedBy cannot change: delete the object and create it again with the other value",
        )
        .field(
            "pool",
            "!has(self.pool) || !(has(self.pool.managedBy) || has(self.pool.suspend) || has(self.pool.allowedNamespaces))",
            "the job's own pool follows the job: remove managedBy, suspend and allowedNamespaces, or use a SGLangPool and poolRef",
        )
        .field(
            "dataset.applyChatTemplate",
            "!(has(self.dataset.applyChatTemplate) && self.dataset.applyChatTemplate && has(self.generate.agentic))",
            "an agent needs the prompt as a messages list, and SGLang applies the chat template: remove applyChatTemplate",
        )
        .field(
            "sampling.maxNewTokens",
            "!(has(self.pool) && has(self.pool.engine) && has(self.pool.engine.contextLength) && \
             has(self.sampling) && has(self.sampling.maxNewTokens)) || self.sampling.maxNewTokens < self.pool.engine.contextLength",
            "maxNewTokens must be less than the pool's engine.contextLength: the engine refuses every request whose prompt and answer do not fit",
        )
        .field(
            "sampling.maxNewTokens",
            "has(self.generate.agentic) || has(self.generate.custom) || has(self.generate.benchmark) || \
             (has(self.sampling) && has(self.sampling.maxNewTokens)) || has(self.maxContextTokens)",
            "the engine would stop after 128 tokens: set sampling.maxNewTokens, or maxContextTokens",
        )
        .field(
            "rollout.filter",
            "!has(self.rollout.filter) || self.rollout.filter.type != 'NonzeroRewardStd' || (has(self.reward) && has(self.reward.type) && self.reward.type != 'None')",
            "NonzeroRewardStd compares rewards: set reward.type, or another filter",
        )
        .field(
            "rollout.filter",
            "!has(self.rollout.filter) || self.rollout.filter.type != 'NonzeroRewardStd' || self.rollout.samplesPerPrompt > 1",
            "NonzeroRewardStd compares the rewards of a group, and one sample alone never passes: set rollout.samplesPerPrompt to 2 or more, or another filter",
        )
        .field(
            "reward.type",
            "!(has(self.reward) && has(self.reward.type) && self.reward.type in ['Agent', 'Verifier']) || has(self.generate.agentic)",
            "reward.type Agent and Verifier score what an agent left: set generate.agentic, or another type",
        )
        .field(
            "dataset.labelKey",
            "has(self.dataset.labelKey) || has(self.dataset.plugin) || \
             !(has(self.reward) && has(self.reward.type) && self.reward.type in ['Math', 'DeepScaler', 'GemmaMath', 'Dapo', 'F1', 'Gpqa'])",
            "this reward.type compares answers with labels: set dataset.labelKey to the key of the label in a row, as in labelKey: label",
        )
        .field(
            "plugins",
            "has(self.plugins) || !(has(self.dataset.plugin) || has(self.generate.custom) || \
             (has(self.generate.multiTurn) && (has(self.generate.multiTurn.tools) || has(self.generate.multiTurn.toolSpecs) && has(self.generate.multiTurn.toolSpecs.plugin))) || \
             (has(self.reward) && has(self.reward.plugin)) || (has(self.rollout.filter) && has(self.rollout.filter.plugin)) || has(self.rollout.hooks))",
            "Python plug-ins run in a container of their own: set plugins.image, and plugins.code when the image does not have it",
        )
        .field(
            "output",
            "has(self.output) || (has(self.trainer) && has(self.trainer.service) && self.trainer.service)",
            "nobody would get the samples: set output.url or output.persistentVolumeClaim, or trainer.service: true",
        );
}
