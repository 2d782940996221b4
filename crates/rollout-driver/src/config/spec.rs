//! The part of a `RolloutJob`'s spec that the driver reads. Names as in the custom resource.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::rollout::{REQUEST_TIMEOUT, Rollout};
use crate::error::DriverError;

/// What the job wants.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// Where prompts come from.
    #[serde(default)]
    pub dataset: DatasetSpec,
    /// The batch loop.
    pub rollout: Rollout,
    /// Sampling parameters.
    #[serde(default)]
    pub sampling: Sampling,
    /// Longest prompt plus output.
    #[serde(default)]
    pub max_context_tokens: Option<i64>,
    /// How one sample is generated.
    pub generate: Generate,
    /// How it is scored.
    #[serde(default)]
    pub reward: RewardSpec,
    /// Where samples are written.
    #[serde(default)]
    pub output: OutputSpec,
    /// Deadlines of the teardown.
    #[serde(default)]
    pub teardown: Teardown,
    /// The job ends after this time.
    #[serde(default)]
    pub active_deadline_seconds: Option<u64>,
    /// The job ends after this time when nothing has been generated until then.
    #[serde(default)]
    pub pre_running_deadline_seconds: Option<u64>,
}

impl JobSpec {
    /// Reads a spec and refuses what this driver cannot do.
    ///
    /// # Errors
    /// Names the field.
    pub fn read(spec: Value) -> Result<Self, DriverError> {
        let refuse = |problem: String| DriverError::Config {
            problem: format!("spec: {problem}"),
        };
        let spec: Self = serde_json::from_value(spec).map_err(|error| refuse(error.to_string()))?;
        let ways = [
            spec.generate.single_turn.is_some(),
            spec.generate.agentic.is_some(),
        ];
        if ways.iter().filter(|set| **set).count() != 1 {
            return Err(refuse(
                "generate: set exactly one of singleTurn and agentic; other ways are not supported by this driver".into(),
            ));
        }
        if spec.sampling.logprob_start_len.is_some() {
            return Err(refuse(
                "sampling.logprobStartLen: remove it, it makes the engine compute log-probs for the whole prompt and defeats the prefix cache".into(),
            ));
        }
        if spec.generate.agentic.is_some() && spec.dataset.apply_chat_template {
            return Err(refuse(
                "dataset.applyChatTemplate: remove it, an agent gets its prompt as messages".into(),
            ));
        }
        if spec.rollout.batch_size < 1 || spec.rollout.samples_per_prompt < 1 {
            return Err(refuse(
                "rollout.batchSize and rollout.samplesPerPrompt must be at least 1".into(),
            ));
        }
        if !REQUEST_TIMEOUT.contains(&spec.rollout.request_timeout_seconds) {
            return Err(refuse(format!(
                "rollout.requestTimeoutSeconds is {}: it must be from {} to {}",
                spec.rollout.request_timeout_seconds,
                REQUEST_TIMEOUT.start(),
                REQUEST_TIMEOUT.end()
            )));
        }
        Ok(spec)
    }
}

/// Where prompts come from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DatasetSpec {
    /// Rows of the manifest.
    pub inline: Option<Vec<Value>>,
    /// The volume that the file is on, for messages: it is mounted at `dataset_path`.
    pub persistent_volume_claim: Option<ClaimFile>,
    /// Where the file is: fetched when it is behind `http` or `https` and `dataset_path` is not set.
    pub url: Option<String>,
    /// Key of the prompt.
    pub prompt_key: String,
    /// Key of the label.
    pub label_key: Option<String>,
    /// Key of the metadata.
    pub metadata_key: Option<String>,
    /// Key of the tools.
    pub tools_key: Option<String>,
    /// The part that is used.
    pub slice: Option<String>,
    /// Render prompts with the model's chat template.
    pub apply_chat_template: bool,
    /// Variables of the template.
    pub chat_template_kwargs: Map<String, Value>,
    /// Shuffle each epoch.
    pub shuffle: bool,
    /// Seed of the shuffle.
    pub seed: i64,
    /// Longer prompts are skipped.
    pub max_prompt_tokens: Option<usize>,
}

/// A file on a volume.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimFile {
    /// The claim.
    pub claim_name: String,
    /// The file in it.
    #[serde(default)]
    pub path: String,
}

impl Default for DatasetSpec {
    fn default() -> Self {
        Self {
            inline: None,
            persistent_volume_claim: None,
            url: None,
            prompt_key: "prompt".to_owned(),
            label_key: None,
            metadata_key: Some("metadata".to_owned()),
            tools_key: Some("tools".to_owned()),
            slice: None,
            apply_chat_template: false,
            chat_template_kwargs: Map::new(),
            shuffle: false,
            seed: 42,
            max_prompt_tokens: None,
        }
    }
}

/// Sampling parameters.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sampling {
    /// Temperature.
    pub temperature: f64,
    /// Nucleus.
    pub top_p: f64,
    /// Most likely tokens; -1 is all.
    pub top_k: i64,
    /// Least probability relative to the most likely token.
    pub min_p: Option<f64>,
    /// Longest output.
    pub max_new_tokens: Option<i64>,
    /// Shortest output.
    pub min_new_tokens: Option<i64>,
    /// Texts that end the output.
    pub stop: Vec<String>,
    /// Tokens that end the output.
    pub stop_token_ids: Vec<i64>,
    /// Leave special tokens out of texts.
    pub skip_special_tokens: bool,
    /// Seed; a sample's is this plus its position in the group.
    pub sampling_seed: Option<i64>,
    /// Refused.
    pub logprob_start_len: Option<i64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            min_p: None,
            max_new_tokens: None,
            min_new_tokens: None,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            skip_special_tokens: false,
            sampling_seed: None,
            logprob_start_len: None,
        }
    }
}

/// How one sample is generated.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Generate {
    /// One `/generate` request.
    pub single_turn: Option<SingleTurn>,
    /// An agent in a session.
    pub agentic: Option<Agentic>,
}

/// One `/generate` request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct SingleTurn {}

/// An agent in a session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Agentic {
    /// The plug-in's own flags: the `args` of its hook.
    pub parameters: Map<String, Value>,
    /// Whether the router fills in sampling parameters, or overrides the agent's.
    pub sampling_policy: SamplingPolicy,
    /// Token budget of a session.
    pub max_sequence_tokens: Option<i64>,
    /// Deadline of a session.
    pub session_deadline_seconds: u64,
    /// The agent can continue a session's trajectory.
    pub resumable: bool,
    /// Hand the label to the agent.
    pub expose_label: bool,
}

impl Default for Agentic {
    fn default() -> Self {
        Self {
            parameters: Map::new(),
            sampling_policy: SamplingPolicy::Default,
            max_sequence_tokens: None,
            session_deadline_seconds: 3600,
            resumable: false,
            expose_label: false,
        }
    }
}

/// What the router does with an agent's sampling parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum SamplingPolicy {
    /// Fills in what is missing.
    #[default]
    Default,
    /// Overrides what the agent sends.
    Pin,
}

/// How a sample is scored.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RewardSpec {
    /// The kind, `None` without one.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Entry of a reward that is an object.
    pub key: Option<String>,
    /// Score whole groups.
    pub group: bool,
    /// Grade only what is in the last `\boxed{}`.
    pub boxed: bool,
    /// The user's function.
    pub plugin: Option<RewardPlugin>,
}

/// The user's reward function.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RewardPlugin {
    /// `module.function`.
    pub path: String,
    /// Its deadline.
    #[serde(default)]
    pub timeout_seconds: Option<u32>,
}

/// Where samples are written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OutputSpec {
    /// Write what was not kept, too.
    pub include_all: bool,
}

/// Deadlines of the teardown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Teardown {
    /// What finishes by itself.
    pub drain_seconds: u64,
    /// The agent's hook.
    pub abort_hook_seconds: u64,
}

impl Default for Teardown {
    fn default() -> Self {
        Self {
            drain_seconds: 60,
            abort_hook_seconds: 30,
        }
    }
}
