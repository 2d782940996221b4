//! `POST /generate`, one request at a time.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::logprobs::TokenLogProbs;

/// The prompt of a request: exactly one of the two keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Prompt {
    /// The engine tokenizes.
    #[serde(rename = "text")]
    Text(String),
    /// Token ids.
    #[serde(rename = "input_ids")]
    Ids(Vec<i64>),
}

/// The body of a request, with the keys that Miles sends, a `rid` of ours, and `return_prompt_token_ids` for text prompts.
/// `logprob_start_len` is never sent: it would compute log-probs for the whole prompt and defeat the prefix cache.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the keys of the wire are switches"
)]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GenerateRequest {
    /// The prompt.
    #[serde(flatten)]
    pub prompt: Prompt,
    /// Unique among the requests in flight; what an abort names.
    pub rid: String,
    /// Sampling parameters, `max_new_tokens` included.
    pub sampling_params: Map<String, Value>,
    /// Ids and log-probs of the output.
    pub return_logprob: bool,
    /// Expert routing of mixture-of-experts models.
    pub return_routed_experts: bool,
    /// Indexer choices of sparse attention models.
    pub return_indexer_topk: bool,
    /// Ids of a text prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub return_prompt_token_ids: bool,
}

/// Why generation ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum FinishReason {
    /// A stop token or text, or the end of the text.
    Stop,
    /// `max_new_tokens`.
    Length,
    /// From outside.
    Abort {
        /// The engine's words.
        #[serde(default)]
        message: Option<String>,
    },
    /// Anything newer.
    #[serde(other)]
    Other,
}

/// `meta_info` of a reply; a request that was aborted in the queue has a thin one.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct MetaInfo {
    /// The rid.
    #[serde(default)]
    pub id: Option<String>,
    /// Why it ended.
    #[serde(default)]
    pub finish_reason: Option<FinishReason>,
    /// Tokens of the prompt.
    #[serde(default)]
    pub prompt_tokens: Option<i64>,
    /// Tokens of the prompt that the prefix cache had.
    #[serde(default)]
    pub cached_tokens: Option<i64>,
    /// Generated tokens.
    #[serde(default)]
    pub completion_tokens: Option<i64>,
    /// Weight version at the end; text or number.
    #[serde(default)]
    pub weight_version: Option<Value>,
    /// Ids and log-probs of the output.
    #[serde(default)]
    pub output_token_logprobs: Option<TokenLogProbs>,
    /// Accepted draft tokens.
    #[serde(default)]
    pub spec_accept_token_num: Option<i64>,
    /// Proposed draft tokens.
    #[serde(default)]
    pub spec_draft_token_num: Option<i64>,
    /// Verification steps.
    #[serde(default)]
    pub spec_verify_ct: Option<i64>,
}

impl MetaInfo {
    /// The weight version as text, whatever the engine sent.
    pub fn weight_version_text(&self) -> Option<String> {
        match self.weight_version.as_ref()? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

/// The reply to a single request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct GenerateReply {
    /// The generated text.
    #[serde(default)]
    pub text: String,
    /// Ids of the output, where the version sends them.
    #[serde(default)]
    pub output_ids: Option<Vec<i64>>,
    /// Ids of the prompt, when asked for.
    #[serde(default)]
    pub prompt_token_ids: Option<Vec<i64>>,
    /// Everything else.
    pub meta_info: MetaInfo,
}

/// What a reply generated, checked.
pub type OutputTokens = TokenLogProbs;

/// A reply that cannot be recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyProblem {
    /// No finish reason.
    #[error("the reply has no finish_reason")]
    NoFinishReason,
    /// Log-probs were asked for and are missing.
    #[error("the reply has {tokens} generated tokens, but no output_token_logprobs")]
    NoIds {
        /// What it says that it generated.
        tokens: i64,
    },
    /// Counts contradict each other.
    #[error("the reply has {ids} token ids, but {name} says {count}")]
    Counts {
        /// Entries of `output_token_logprobs`.
        ids: usize,
        /// The other field.
        name: &'static str,
        /// What it says.
        count: i64,
    },
    /// Ids contradict each other.
    #[error("output_ids and output_token_logprobs disagree")]
    Ids,
}

impl GenerateReply {
    /// Ids and log-probs of the output. A request that was aborted before it generated anything has none, and that is fine.
    ///
    /// # Errors
    /// Ids, counts or the finish reason are missing, or contradict each other.
    pub fn output(&self) -> Result<OutputTokens, ReplyProblem> {
        let meta = &self.meta_info;
        if meta.finish_reason.is_none() {
            return Err(ReplyProblem::NoFinishReason);
        }
        let Some(output) = &meta.output_token_logprobs else {
            let tokens = meta.completion_tokens.unwrap_or_else(|| {
                self.output_ids
                    .as_ref()
                    .map_or(i64::from(!self.text.is_empty()), |ids| count(ids.len()))
            });
            if tokens == 0 {
                return Ok(OutputTokens::default());
            }
            return Err(ReplyProblem::NoIds { tokens });
        };
        let ids = output.ids.len();
        if let Some(tokens) = meta.completion_tokens
            && tokens != count(ids)
        {
            return Err(ReplyProblem::Counts {
                ids,
                name: "completion_tokens",
                count: tokens,
            });
        }
        if let Some(other) = &self.output_ids {
            if other.len() != ids {
                return Err(ReplyProblem::Counts {
                    ids,
                    name: "output_ids",
                    count: count(other.len()),
                });
            }
            if *other != output.ids {
                return Err(ReplyProblem::Ids);
            }
        }
        Ok(output.clone())
    }
}

fn count(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}
