//! Sampling parameters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rules::Rules;

/// Sampling parameters of every request of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct Sampling {
    /// Temperature; 0 is greedy. Default: 1.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub temperature: f64,
    /// Probability mass that is sampled from, most likely tokens first; 1: all. Default: 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub top_p: f64,
    /// Most likely tokens that are sampled from; -1: all. Default: -1.
    #[schemars(range(min = -1, max = 10_000_000))]
    pub top_k: i32,
    /// Least probability, relative to the most likely token, of a token that is sampled; none: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_p: Option<f64>,
    /// Longest answer, in tokens. Without it and without maxContextTokens, SGLang stops after 128; an agent may set its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub max_new_tokens: Option<i32>,
    /// Shortest answer, in tokens: it cannot end before. None: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16_777_216))]
    pub min_new_tokens: Option<i32>,
    /// Texts that end an answer; they stay in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 1024)))]
    pub stop: Vec<String>,
    /// Ids of tokens that end an answer, besides those of the model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(range(min = 0)))]
    pub stop_token_ids: Vec<i32>,
    /// Leaves special tokens out of the text of answers; token ids stay as they are.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skip_special_tokens: bool,
    /// Seed of the engine's sampling; sample i of a group gets this plus i, from i = 0. None: the engine draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sampling_seed: Option<i64>,
    /// Always refused: it makes the engine compute log-probabilities for the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprob_start_len: Option<i32>,
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

/// Sampling parameters in place of the job's; what is not set stays the job's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct SamplingOverride {
    /// 0 is greedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub temperature: Option<f64>,
    /// Probability mass that is sampled from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub top_p: Option<f64>,
    /// Tokens that are sampled from; -1: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1, max = 10_000_000))]
    pub top_k: Option<i32>,
    /// Least probability, relative to the best token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_p: Option<f64>,
    /// Longest answer, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub max_new_tokens: Option<i32>,
    /// Shortest answer, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16_777_216))]
    pub min_new_tokens: Option<i32>,
    /// Texts that end an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 1024)))]
    pub stop: Option<Vec<String>>,
    /// Tokens that end an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(range(min = 0)))]
    pub stop_token_ids: Option<Vec<i32>>,
    /// Leaves special tokens out of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_special_tokens: Option<bool>,
    /// Seed of the engine's sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sampling_seed: Option<i64>,
    /// Always refused, as in the job's sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprob_start_len: Option<i32>,
}

impl SamplingOverride {
    /// The job's parameters with these in their place.
    #[must_use]
    pub fn over(&self, job: &Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(job.temperature),
            top_p: self.top_p.unwrap_or(job.top_p),
            top_k: self.top_k.unwrap_or(job.top_k),
            min_p: self.min_p.or(job.min_p),
            max_new_tokens: self.max_new_tokens.or(job.max_new_tokens),
            min_new_tokens: self.min_new_tokens.or(job.min_new_tokens),
            stop: self.stop.clone().unwrap_or_else(|| job.stop.clone()),
            stop_token_ids: self
                .stop_token_ids
                .clone()
                .unwrap_or_else(|| job.stop_token_ids.clone()),
            skip_special_tokens: self.skip_special_tokens.unwrap_or(job.skip_special_tokens),
            sampling_seed: self.sampling_seed.or(job.sampling_seed),
            logprob_start_len: None,
        }
    }
}

/// Why `logprobStartLen` is refused, in whatever spelling.
pub(crate) const LOGPROBS_OF_THE_PROMPT: &str = "remove logprobStartLen: it makes SGLang compute log-probabilities for prompt tokens and defeats the prefix cache; prompt token ids come at no cost without it";

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .field(
            "logprobStartLen",
            "!has(self.logprobStartLen)",
            LOGPROBS_OF_THE_PROMPT,
        )
        .field(
            "minNewTokens",
            "!has(self.minNewTokens) || !has(self.maxNewTokens) || self.minNewTokens <= self.maxNewTokens",
            "minNewTokens must be at most maxNewTokens",
        )
        .field(
            "topP",
            "!has(self.topP) || self.topP > 0.0",
            "topP 0 would leave no token to sample: write 1 for all tokens, or more than 0",
        )
        .field(
            "topK",
            "!has(self.topK) || self.topK != 0",
            "topK 0 would leave no token to sample: write -1 for all tokens, or 1 or more",
        );
}
