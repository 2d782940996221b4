//! What an engine answered, checked before anything is recorded.
//!
//! Two profiles of SGLang are read: stock (0.5.23: ids in `meta_info.output_token_logprobs`, in `response_token_ids` when asked for)
//! and Miles's fork (`token_id` in `logprobs.content`). A reply that contradicts itself is an error; nothing of it is used.

mod chat;
mod generate;
mod meta;
mod tokens;

pub use chat::ChatReply;
pub use generate::{GenerateReply, looks_like_batch};

use std::sync::Arc;

use crate::json::JsonError;
use crate::sample::{SampleStatus, SpecInfo};

/// Why the engine stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// A stop token or stop string.
    Stop,
    /// The message calls tools.
    ToolCalls,
    /// A token limit.
    Length,
    /// Ended from outside.
    Abort,
    /// Anything else, or nothing.
    Other(String),
}

impl FinishReason {
    /// Reads SGLang's spelling.
    pub fn parse(text: &str) -> Self {
        match text {
            "stop" => Self::Stop,
            "tool_calls" | "function_call" => Self::ToolCalls,
            "length" => Self::Length,
            "abort" => Self::Abort,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The name that [`FinishReason::parse`] reads.
    pub fn name(&self) -> &str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::Other(other) => other,
        }
    }

    /// The status of a sample that ends with such a turn. A reason that nobody knows ends it as aborted: its tokens are the
    /// engine's, but nothing says that they are complete.
    pub fn status(&self) -> SampleStatus {
        match self {
            Self::Stop | Self::ToolCalls => SampleStatus::Completed,
            Self::Length => SampleStatus::Truncated,
            Self::Abort | Self::Other(_) => SampleStatus::Aborted,
        }
    }
}

/// The text of each output token, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pieces {
    text: String,
    ends: Vec<u32>,
}

impl Pieces {
    pub(crate) fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.ends
            .push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }

    /// The text, and where each token's ends.
    pub(crate) fn parts(&self) -> (&str, &[u32]) {
        (&self.text, &self.ends)
    }

    /// The same put together again. `None` when the ends do not ascend, or pass the text's.
    pub(crate) fn from_parts(text: String, ends: Vec<u32>) -> Option<Self> {
        let ascend = ends.is_sorted();
        let within = ends
            .last()
            .is_none_or(|last| usize::try_from(*last).is_ok_and(|last| last <= text.len()));
        let whole = ends.iter().all(|end| text.is_char_boundary(*end as usize));
        (ascend && within && whole).then_some(Self { text, ends })
    }

    /// Gives back what was reserved for more.
    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text of the first `count` tokens. A character that is spread over several tokens shows as U+FFFD.
    pub fn first(&self, count: usize) -> &str {
        let end = match count.checked_sub(1) {
            None => 0,
            Some(last) => self
                .ends
                .get(last)
                .map_or(self.text.len(), |end| *end as usize),
        };
        self.text.get(..end).unwrap_or(&self.text)
    }

    /// Bytes that it occupies.
    pub fn heap_bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

/// What an engine sent for the trainer to replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayPayload {
    /// Rows of 32-bit integers, little-endian.
    Rows(Vec<u8>),
    /// It could not be read; the reason.
    Broken(&'static str),
}

/// One generation of an engine: what is recorded of a turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generation {
    /// Token ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Token ids of the output, the stop token included.
    pub output_ids: Vec<u32>,
    /// Log-probability of each output token.
    pub log_probs: Vec<f64>,
    /// Text of each output token, if the engine sent it.
    pub pieces: Option<Pieces>,
    /// Why it ended.
    pub finish: Option<FinishReason>,
    /// Weights that the engine had.
    pub weight_version: Option<String>,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: i64,
    /// Prompt tokens as the engine counted them.
    pub prompt_tokens: i64,
    /// Speculative decoding counters.
    pub spec: SpecInfo,
    /// Seconds that the engine took.
    pub engine_seconds: Option<f64>,
    /// The experts that each token was routed to.
    pub routed_experts: Option<ReplayPayload>,
    /// The positions that sparse attention chose.
    pub indexer_topk: Option<ReplayPayload>,
    /// Layers of `indexer_topk`.
    pub indexer_layers: Option<usize>,
}

impl Generation {
    /// Tokens of prompt and output.
    pub fn total(&self) -> usize {
        self.prompt_ids.len() + self.output_ids.len()
    }

    /// The status of a sample that ends here.
    pub fn status(&self) -> SampleStatus {
        self.finish
            .as_ref()
            .map_or(SampleStatus::Aborted, FinishReason::status)
    }
}

/// The prompt of an earlier turn: how the engine wrote its ids, and the ids. A prompt that begins with it need not be read again from
/// the start, which is most of the work of a long conversation's turn.
#[derive(Debug, Clone)]
pub struct KnownPrompt {
    /// The list in JSON, without brackets.
    pub text: Arc<str>,
    /// Its ids.
    pub ids: Vec<u32>,
}

/// Why a reply cannot be recorded. The texts of the first four are those of Miles's session server.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplyError {
    /// No log-probabilities.
    #[error("meta_info and output_token_logprobs must be in choice (requires logprobs=True)")]
    NoLogProbs,
    /// A message without content.
    #[error("assistant message content is None")]
    NoContent,
    /// As many log-probabilities as tokens are expected.
    #[error("len(output_token_logprobs)={rows} != completion_tokens={completion_tokens}")]
    OutputCount {
        /// Rows of log-probabilities.
        rows: usize,
        /// What the engine counted.
        completion_tokens: i64,
    },
    /// The body is not JSON, or a field has another type.
    #[error("engine reply is not valid: {0}")]
    Json(#[from] JsonError),
    /// The reply has no choice.
    #[error("engine reply has no choices")]
    NoChoice,
    /// The reply has several choices.
    #[error("engine reply has {0} choices, expected 1")]
    ManyChoices(usize),
    /// No output ids in any of the three places.
    #[error(
        "no output token ids: neither meta_info.output_token_logprobs, nor response_token_ids, nor logprobs.content[*].token_id has them"
    )]
    NoOutputIds,
    /// No prompt ids.
    #[error(
        "no prompt token ids: choices[0].prompt_token_ids is missing (requires return_prompt_token_ids=True)"
    )]
    NoPromptIds,
    /// Two places name different ids.
    #[error("{left} and {right} disagree")]
    Disagree {
        /// One place.
        left: &'static str,
        /// The other place.
        right: &'static str,
    },
    /// The prompt's ids and its count differ.
    #[error("len(prompt_token_ids)={ids} != prompt_tokens={prompt_tokens}")]
    PromptCount {
        /// Ids that came.
        ids: usize,
        /// What the engine counted.
        prompt_tokens: i64,
    },
    /// A log-probability that is null.
    #[error("the log-probability of output token {0} is null")]
    NullLogProb(usize),
}
