//! Chat requests of a session.

use rollout_session::json::Kind;
use serde_json::Value;

use super::Request;
use super::content::{Refusal, count_text_messages};
use super::sampling::{Policy, Sampling, same_parameter};
use crate::error::ApiError;

/// Keys that the router sets itself, or takes out.
const OWNED: [&str; 9] = [
    "stream",
    "stream_options",
    "logprobs",
    "return_prompt_token_ids",
    "return_meta_info",
    "no_stop_trim",
    "input_ids",
    "rid",
    "logprob_start_len",
];

/// How the engine is asked for what is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recording {
    /// One answer in one piece, with all ids, counters and log-probabilities.
    Whole,
    /// A stream of deltas with log-probabilities; ids and counters are at its end.
    Streamed,
}

impl Recording {
    fn fields(self) -> &'static str {
        match self {
            Self::Whole => {
                r#""logprobs":true,"return_prompt_token_ids":true,"return_meta_info":true,"no_stop_trim":false,"stream":false"#
            }
            Self::Streamed => {
                r#""logprobs":true,"return_input_ids_in_sglext":true,"return_output_ids_in_sglext":true,"return_cached_tokens_details":true,"return_spec_tokens_details":true,"no_stop_trim":false,"stream":true,"stream_options":{"include_usage":true}"#
            }
        }
    }

    /// Keys beyond [`OWNED`] that it sets itself, or that do not go with it.
    fn owns(self, key: &str) -> bool {
        let more: &[&str] = match self {
            Self::Whole => &[],
            Self::Streamed => &[
                "return_token_ids",
                "return_input_ids_in_sglext",
                "return_output_ids_in_sglext",
                "return_cached_tokens_details",
                "return_spec_tokens_details",
            ],
        };
        more.contains(&key)
    }
}

/// What an engine returns in one piece only, or in another shape than it is recorded in.
const WHOLE_ONLY: [&str; 5] = [
    "return_routed_experts",
    "return_indexer_topk",
    "return_hidden_states",
    "return_sampling_mask",
    "return_flat_raw_output_top_logprobs",
];

const LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// A chat request that can be recorded.
#[derive(Debug)]
pub(crate) struct ChatRequest<'a> {
    request: Request<'a>,
    pub(crate) messages: usize,
    pub(crate) wants_stream: bool,
    pub(crate) wants_usage: bool,
    /// It asks for log-probabilities of the prompt.
    pub(crate) has_logprob_start: bool,
}

/// Room that the session's budget leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) limit: usize,
    /// Tokens that the prompt has at least.
    pub(crate) used: usize,
}

impl<'a> ChatRequest<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, ApiError> {
        let mut messages = None;
        let request = Request::read_with(body, |key, value| {
            if key.name == "messages" && value.kind()? != Kind::Null {
                messages = Some(count_text_messages(value)?);
                return Ok(());
            }
            Ok::<_, Refusal>(value.skip()?)
        })?;
        let Some(messages) = messages else {
            return Err(ApiError::BadRequest("messages is missing".to_owned()));
        };
        if request.get("n").is_some_and(|n| n != "1") {
            return Err(ApiError::BadRequest(
                "n must be 1: of several choices only one could be continued, so a session records one; send several requests instead".to_owned(),
            ));
        }
        let wants_usage = match request.get("stream_options") {
            None => false,
            Some(options) if options.starts_with('{') => {
                Request::read(options.as_bytes())?.flag("include_usage")?
            }
            Some(_) => {
                return Err(ApiError::BadRequest(
                    "stream_options must be an object".to_owned(),
                ));
            }
        };
        Ok(Self {
            messages,
            wants_stream: request.flag("stream")?,
            wants_usage,
            has_logprob_start: request.fields.get("logprob_start_len").is_some(),
            request,
        })
    }

    /// Whether the client wants log-probabilities for itself.
    pub(crate) fn wants_log_probs(&self) -> bool {
        self.request.is_true("logprobs")
    }

    /// Whether the answer may call tools.
    pub(crate) fn has_tools(&self) -> bool {
        self.request.get("tools").is_some()
    }

    /// Whether the client wants a stream, and nothing that does not fit into one.
    pub(crate) fn can_be_streamed(&self) -> bool {
        let whole_only = WHOLE_ONLY
            .iter()
            .any(|key| self.request.get(key).is_some_and(|value| value != "false"));
        self.wants_stream && !whole_only
    }

    /// The body for the engine.
    pub(crate) fn rewrite(
        &self,
        rid: &str,
        sampling: &Sampling,
        budget: Option<Budget>,
        recording: Recording,
    ) -> Result<String, ApiError> {
        let mut added = String::with_capacity(256);
        let mut replaced: Vec<&str> = Vec::new();
        for (key, value) in &sampling.params {
            if sampling.policy == Policy::Pin || !self.has_parameter(key) {
                push(&mut added, key, value);
                replaced.push(key);
            }
        }
        let clamped = self.clamp(sampling, &replaced, budget)?;
        if let Some(limit) = clamped {
            added.clear();
            for (key, value) in &sampling.params {
                if replaced.contains(&key.as_str()) && !LIMITS.contains(&key.as_str()) {
                    push(&mut added, key, value);
                }
            }
            push(&mut added, "max_tokens", &Value::from(limit));
        }
        if !added.is_empty() {
            added.push(',');
        }
        added.push_str(recording.fields());
        added.push_str(r#","rid":""#);
        added.push_str(rid);
        added.push('"');
        let drop = |key: &str| {
            OWNED.contains(&key)
                || recording.owns(key)
                || replaced.iter().any(|other| same_parameter(key, other))
                || (clamped.is_some() && LIMITS.contains(&key))
        };
        Ok(self.request.fields.rewrite(self.request.text, drop, &added))
    }

    fn has_parameter(&self, key: &str) -> bool {
        let mut fields = self.request.fields.iter();
        fields.any(|field| same_parameter(&field.key, key) && self.request.value(field) != "null")
    }

    /// The output limit to set, when the one that applies does not fit the budget.
    fn clamp(
        &self,
        sampling: &Sampling,
        replaced: &[&str],
        budget: Option<Budget>,
    ) -> Result<Option<usize>, ApiError> {
        let Some(Budget { limit, used }) = budget else {
            return Ok(None);
        };
        let room = limit.saturating_sub(used);
        if room == 0 {
            return Err(ApiError::ContextLength { limit, used });
        }
        let policy = replaced
            .iter()
            .filter(|key| LIMITS.contains(key))
            .find_map(|key| sampling.params.get(*key)?.as_i64());
        let asked = policy.or_else(|| {
            let limits = LIMITS.iter().filter_map(|key| self.request.integer(key));
            limits.min()
        });
        let fits = asked.is_some_and(|asked| usize::try_from(asked).is_ok_and(|n| n <= room));
        Ok((!fits).then_some(room))
    }
}

fn push(added: &mut String, key: &str, value: &Value) {
    if !added.is_empty() {
        added.push(',');
    }
    added.push_str(&Value::from(key).to_string());
    added.push(':');
    added.push_str(&value.to_string());
}
