//! `meta_info`: what an answer says about itself, with the key order of SGLang 0.5.23.

use serde::Serialize;
use serde_json::{Value, json};

use super::logprobs::Logprobs;
use crate::replies::{Output, Stop};
use crate::scheduler::{Ending, VersionSpan};

/// The `meta_info` of a request that was prefilled.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MetaInfo {
    pub(crate) id: String,
    pub(crate) finish_reason: Value,
    pub(crate) prompt_tokens: usize,
    pub(crate) weight_version: String,
    pub(crate) num_retractions: u32,
    pub(crate) storage_prefetch_wait: f64,
    pub(crate) storage_staging_wait: f64,
    pub(crate) forward_entry_time: f64,
    pub(crate) prefill_finished_time: f64,
    pub(crate) queue_time: f64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) logprobs: Option<Logprobs>,
    pub(crate) reasoning_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) cached_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight_versions: Option<Vec<Span>>,
    pub(crate) cached_tokens_details: Option<CachedTokens>,
    pub(crate) dp_rank: Option<u32>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<EndTimes>,
    /// The first chunk of a stream says when it was sent.
    #[serde(
        rename = "response_sent_to_client_ts",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) first_sent: Option<f64>,
}

/// Times that only a finished answer has.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EndTimes {
    pub(crate) e2e_latency: f64,
    pub(crate) request_received_ts: f64,
    pub(crate) first_token_latency: f64,
    pub(crate) api_server_dispatch_finish_ts: f64,
    /// When the first chunk was sent, in a stream of several.
    #[serde(
        rename = "response_sent_to_client_ts",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) first_sent: Option<f64>,
    pub(crate) request_finished_ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decode_throughput: Option<f64>,
    /// When the answer was sent, outside of such a stream.
    #[serde(
        rename = "response_sent_to_client_ts",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) sent: Option<f64>,
}

/// The `meta_info` of a request that was aborted in the waiting queue.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ThinMetaInfo {
    pub(crate) id: String,
    pub(crate) finish_reason: Value,
    pub(crate) weight_version: String,
    pub(crate) e2e_latency: f64,
    pub(crate) weight_versions: Vec<Span>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) logprobs: Option<Logprobs>,
    pub(crate) completion_tokens: usize,
    pub(crate) response_sent_to_client_ts: f64,
}

/// Tokens from `start` to before `end` were generated under `version`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Span {
    pub(crate) version: String,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Where cached tokens were found.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct CachedTokens {
    pub(crate) device: usize,
    pub(crate) host: usize,
}

/// Spans with their ends.
pub(crate) fn spans(versions: &[VersionSpan], generated: usize) -> Vec<Span> {
    let ends = versions
        .iter()
        .skip(1)
        .map(|span| span.start)
        .chain([generated]);
    versions
        .iter()
        .zip(ends)
        .map(|(span, end)| Span {
            version: span.version.to_string(),
            start: span.start,
            end,
        })
        .collect()
}

/// `finish_reason` of `/generate`.
pub(crate) fn finish_reason(output: &Output, ending: Ending, generated: usize) -> Value {
    match (ending, output.stop()) {
        (Ending::Aborted, _) => {
            json!({"type": "abort", "message": "Aborted", "status_code": null, "err_type": null})
        }
        (Ending::AbortedWaiting, _) => {
            json!({"type": "abort", "message": "Abort in waiting queue"})
        }
        (Ending::Complete, Stop::Length) => json!({"type": "length", "length": generated}),
        (Ending::Complete, Stop::Token(token)) => json!({"type": "stop", "matched": token}),
        (Ending::Complete, Stop::Text(text) | Stop::Expression(text)) => {
            json!({"type": "stop", "matched": &**text})
        }
    }
}
