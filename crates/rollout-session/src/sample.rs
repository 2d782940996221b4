//! The training record and its invariants.
//!
//! Field names are those of Miles's `Sample` (`miles/utils/types.py`), so that a row of the output reads as one. Token ids are `i64`
//! on the wire; log-probabilities are `f64` end to end, so that `-0.0` and huge negatives survive.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// How a sample ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SampleStatus {
    /// Not generated yet.
    #[default]
    Pending,
    /// The model or the agent ended by itself.
    Completed,
    /// Cut at a token limit.
    Truncated,
    /// Ended from outside before it was complete.
    Aborted,
    /// Broken: an invariant does not hold, or generation failed for good.
    Failed,
}

/// Prefix cache counters of a sample, summed over its engine calls, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PrefixCacheInfo {
    /// Prompt tokens that the engine found in its cache.
    #[serde(default)]
    pub cached_tokens: i64,
    /// All prompt tokens.
    #[serde(default)]
    pub total_prompt_tokens: i64,
}

/// Speculative decoding counters of a sample, summed over its engine calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SpecInfo {
    /// Accepted draft tokens.
    #[serde(default)]
    pub spec_accept_token_num: i64,
    /// Proposed draft tokens.
    #[serde(default)]
    pub spec_draft_token_num: i64,
    /// Verification steps.
    #[serde(default)]
    pub spec_verify_ct: i64,
    /// Generated tokens.
    #[serde(default)]
    pub completion_token_num: i64,
}

/// Replay rows of a sample, one for each token but the last: 32-bit integers, little-endian, in row order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplayRows {
    /// Rows, layers, values per layer.
    pub shape: [usize; 3],
    /// The integers.
    pub bytes: Vec<u8>,
}

impl ReplayRows {
    /// Rows of these integers.
    ///
    /// # Errors
    /// The shape has another number of integers than there are.
    pub fn new(shape: [usize; 3], bytes: Vec<u8>) -> Result<Self, InvariantError> {
        let values = shape
            .iter()
            .try_fold(1usize, |product, size| product.checked_mul(*size));
        let expected = values.and_then(|values| values.checked_mul(size_of::<i32>()));
        if expected == Some(bytes.len()) {
            return Ok(Self { shape, bytes });
        }
        Err(InvariantError {
            field: "shape",
            problem: format!("is {shape:?}, but there are {} bytes", bytes.len()),
        })
    }
}

/// In text form: the shape, and the integers in base64.
#[derive(Serialize, Deserialize)]
struct ReplayText {
    shape: [usize; 3],
    i32_base64: String,
}

impl Serialize for ReplayRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = ReplayText {
            shape: self.shape,
            i32_base64: STANDARD.encode(&self.bytes),
        };
        text.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ReplayRows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ReplayText { shape, i32_base64 } = ReplayText::deserialize(deserializer)?;
        let bytes = STANDARD.decode(i32_base64).map_err(D::Error::custom)?;
        Self::new(shape, bytes).map_err(D::Error::custom)
    }
}

/// One training sample: `tokens` is the prompt followed by `response_length` response ids.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Prompt group, increasing for ever within a data source.
    pub group_index: Option<i64>,
    /// Unique sample id, increasing for ever within a data source.
    pub index: Option<i64>,
    /// One execution of a rollout; siblings that came from one session share it.
    pub rollout_id: Option<i64>,
    /// Rendered text, or chat messages.
    #[serde(default)]
    pub prompt: Value,
    /// Prompt ids followed by response ids.
    #[serde(default)]
    pub tokens: Vec<i64>,
    /// Response text, tool and user text between turns included.
    #[serde(default)]
    pub response: String,
    /// Number of response ids.
    #[serde(default)]
    pub response_length: usize,
    /// Ground truth.
    #[serde(default)]
    pub label: Value,
    /// A number, or an object of numbers.
    #[serde(default)]
    pub reward: Value,
    /// 1 where the token is trained; `None` means all ones.
    #[serde(default)]
    pub loss_mask: Option<Vec<u8>>,
    /// One entry per engine call.
    #[serde(default)]
    pub weight_versions: Vec<String>,
    /// Log-probability of each response token under the policy that produced it; 0.0 where the loss mask is 0.
    #[serde(default)]
    pub rollout_log_probs: Option<Vec<f64>>,
    /// The experts that each token but the last was routed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_routed_experts: Option<ReplayRows>,
    /// The positions that sparse attention chose for each token but the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_indexer_topk: Option<ReplayRows>,
    /// Zero the whole mask at conversion; the sample still counts for the advantage.
    #[serde(default)]
    pub remove_sample: bool,
    /// How it ended.
    pub status: SampleStatus,
    /// Free-form: the data set's metadata, then the agent's, then the session's.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// Sent as `X-SMG-Routing-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key: Option<String>,
    /// Seconds spent in tools and environments.
    #[serde(default)]
    pub non_generation_time: f64,
    /// Speculative decoding counters.
    #[serde(default)]
    pub spec_info: SpecInfo,
    /// Prefix cache counters.
    #[serde(default)]
    pub prefix_cache_info: PrefixCacheInfo,
}

/// A broken invariant of a [`Sample`]: the field and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvariantError {
    /// Name of the field.
    pub field: &'static str,
    /// What is wrong, with both numbers.
    pub problem: String,
}

impl Sample {
    /// Checks the invariants that every consumer relies on.
    ///
    /// # Errors
    /// Names the first field whose length does not fit, a mask value other than 0 and 1, a log-probability that is not finite, a
    /// negative token id, or a log-probability other than 0.0 where the mask is 0.
    pub fn validate(&self) -> Result<(), InvariantError> {
        let broken = |field, problem: String| Err(InvariantError { field, problem });
        if self.tokens.len() < self.response_length {
            return broken(
                "response_length",
                format!(
                    "is {}, but there are only {} tokens",
                    self.response_length,
                    self.tokens.len()
                ),
            );
        }
        if let Some(position) = self.tokens.iter().position(|id| *id < 0) {
            return broken("tokens", format!("the id at {position} is negative"));
        }
        if let Some(mask) = &self.loss_mask {
            if mask.len() != self.response_length {
                return broken(
                    "loss_mask",
                    format!(
                        "has {} entries, response_length is {}",
                        mask.len(),
                        self.response_length
                    ),
                );
            }
            if let Some(position) = mask.iter().position(|m| *m > 1) {
                return broken(
                    "loss_mask",
                    format!("the entry at {position} is neither 0 nor 1"),
                );
            }
        }
        if let Some(log_probs) = &self.rollout_log_probs {
            if log_probs.len() != self.response_length {
                return broken(
                    "rollout_log_probs",
                    format!(
                        "has {} entries, response_length is {}",
                        log_probs.len(),
                        self.response_length
                    ),
                );
            }
            if let Some(position) = log_probs.iter().position(|p| !p.is_finite()) {
                return broken(
                    "rollout_log_probs",
                    format!("the entry at {position} is not a finite number"),
                );
            }
            if let Some(mask) = &self.loss_mask
                && let Some(position) = mask
                    .iter()
                    .zip(log_probs)
                    .position(|(m, p)| *m == 0 && *p != 0.0)
            {
                return broken(
                    "rollout_log_probs",
                    format!("the entry at {position} is not 0.0, its loss mask is 0"),
                );
            }
        }
        let needed = self.tokens.len().saturating_sub(1);
        for (field, rows) in [
            ("rollout_routed_experts", &self.rollout_routed_experts),
            ("rollout_indexer_topk", &self.rollout_indexer_topk),
        ] {
            if let Some(rows) = rows
                && rows.shape[0] != needed
            {
                return broken(
                    field,
                    format!("has {} rows, the tokens need {needed}", rows.shape[0]),
                );
            }
        }
        Ok(())
    }

    /// Number of trained tokens: the sum of the loss mask, or the response length without one.
    pub fn trained_tokens(&self) -> usize {
        self.loss_mask
            .as_ref()
            .map_or(self.response_length, |mask| {
                mask.iter().map(|m| usize::from(*m)).sum()
            })
    }

    /// The scalar reward: the reward itself, or the entry `key` of a reward that is an object.
    pub fn scalar_reward(&self, key: &str) -> Option<f64> {
        match &self.reward {
            Value::Object(parts) => parts.get(key).and_then(Value::as_f64),
            other => other.as_f64(),
        }
    }
}
