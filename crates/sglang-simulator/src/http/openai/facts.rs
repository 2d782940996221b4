//! What an answer tells of its outputs: how they ended, how long they are, under which weights.

use serde_json::{Value, json};

use crate::http::generate::Meta;
use crate::scheduler::Ending;
use crate::wire::logprobs::Logprobs;
use crate::wire::meta_info::Span;

/// What an answer needs of a `meta_info`.
#[derive(Clone, Copy)]
pub(in crate::http) struct Facts<'a> {
    pub(in crate::http) id: &'a str,
    pub(in crate::http) finish_reason: &'a Value,
    pub(in crate::http) prompt_tokens: usize,
    pub(in crate::http) completion_tokens: usize,
    pub(in crate::http) reasoning_tokens: usize,
    pub(in crate::http) logprobs: Option<&'a Logprobs>,
    weight_version: &'a str,
    weight_versions: &'a [Span],
}

impl<'a> Facts<'a> {
    pub(in crate::http) fn of(meta: &'a Meta) -> Self {
        match meta {
            Meta::Full(meta) => Self {
                id: &meta.id,
                finish_reason: &meta.finish_reason,
                prompt_tokens: meta.prompt_tokens,
                completion_tokens: meta.completion_tokens,
                reasoning_tokens: meta.reasoning_tokens,
                logprobs: meta.logprobs.as_ref(),
                weight_version: &meta.weight_version,
                weight_versions: meta.weight_versions.as_deref().unwrap_or_default(),
            },
            Meta::Thin(meta) => Self {
                id: &meta.id,
                finish_reason: &meta.finish_reason,
                prompt_tokens: 0,
                completion_tokens: meta.completion_tokens,
                reasoning_tokens: 0,
                logprobs: meta.logprobs.as_ref(),
                weight_version: &meta.weight_version,
                weight_versions: &meta.weight_versions,
            },
        }
    }
}

/// `finish_reason` and `matched_stop`.
pub(in crate::http) fn finish(
    reason: &Value,
    ending: Option<Ending>,
    has_calls: bool,
) -> (Value, Value) {
    if matches!(ending, Some(Ending::Aborted | Ending::AbortedWaiting)) {
        return ("abort".into(), Value::Null);
    }
    let kind = reason["type"].as_str().unwrap_or_default();
    let shown = if has_calls && kind == "stop" {
        "tool_calls"
    } else {
        kind
    };
    (shown.into(), reason["matched"].clone())
}

/// `usage` of several samples of one prompt.
pub(in crate::http) fn usage<'a>(samples: impl Iterator<Item = Facts<'a>>) -> Value {
    let (mut prompt, mut completion, mut reasoning) = (0, 0, 0);
    for facts in samples {
        prompt = facts.prompt_tokens;
        completion += facts.completion_tokens;
        reasoning += facts.reasoning_tokens;
    }
    json!({
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": null,
        "reasoning_tokens": reasoning,
        "completion_tokens_details": null,
    })
}

/// `metadata`: versions of the weights.
pub(in crate::http) fn metadata(facts: &Facts<'_>) -> Value {
    json!({"weight_version": facts.weight_version, "weight_versions": facts.weight_versions})
}
