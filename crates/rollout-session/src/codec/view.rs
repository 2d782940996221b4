//! Samples as JSON, for people and for clients without safetensors. The same fields; a null field is `null`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::collect::{Collected, EmptyReason};
use crate::sample::{PrefixCacheInfo, ReplayRows, Sample, SampleStatus};

#[derive(Serialize, Deserialize)]
struct SampleView {
    tokens: Vec<i64>,
    response: String,
    response_length: usize,
    loss_mask: Option<Vec<u8>>,
    rollout_log_probs: Option<Vec<f64>>,
    #[serde(default)]
    rollout_routed_experts: Option<ReplayRows>,
    #[serde(default)]
    rollout_indexer_topk: Option<ReplayRows>,
    status: SampleStatus,
    #[serde(default)]
    weight_versions: Vec<String>,
    #[serde(default)]
    prefix_cache_info: PrefixCacheInfo,
    #[serde(default)]
    metadata: Map<String, Value>,
    #[serde(default)]
    reward: Value,
}

#[derive(Serialize, Deserialize)]
struct CollectedView {
    samples: Vec<SampleView>,
    session_metadata: Map<String, Value>,
    empty_reason: Option<EmptyReason>,
}

/// Writes the JSON.
///
/// # Errors
/// A log-probability that is not finite.
pub fn to_json(collected: Collected) -> serde_json::Result<Vec<u8>> {
    let samples = collected.samples.into_iter().map(view).collect();
    serde_json::to_vec(&CollectedView {
        samples,
        session_metadata: collected.session_metadata,
        empty_reason: collected.empty_reason,
    })
}

/// Reads the JSON.
///
/// # Errors
/// Not the JSON that [`to_json`] writes.
pub fn from_json(body: &[u8]) -> serde_json::Result<Collected> {
    let view: CollectedView = serde_json::from_slice(body)?;
    Ok(Collected {
        samples: view.samples.into_iter().map(sample).collect(),
        session_metadata: view.session_metadata,
        empty_reason: view.empty_reason,
    })
}

fn view(sample: Sample) -> SampleView {
    SampleView {
        tokens: sample.tokens,
        response: sample.response,
        response_length: sample.response_length,
        loss_mask: sample.loss_mask,
        rollout_log_probs: sample.rollout_log_probs,
        rollout_routed_experts: sample.rollout_routed_experts,
        rollout_indexer_topk: sample.rollout_indexer_topk,
        status: sample.status,
        weight_versions: sample.weight_versions,
        prefix_cache_info: sample.prefix_cache_info,
        metadata: sample.metadata,
        reward: sample.reward,
    }
}

fn sample(view: SampleView) -> Sample {
    Sample {
        tokens: view.tokens,
        response: view.response,
        response_length: view.response_length,
        loss_mask: view.loss_mask,
        rollout_log_probs: view.rollout_log_probs,
        rollout_routed_experts: view.rollout_routed_experts,
        rollout_indexer_topk: view.rollout_indexer_topk,
        status: view.status,
        weight_versions: view.weight_versions,
        prefix_cache_info: view.prefix_cache_info,
        metadata: view.metadata,
        reward: view.reward,
        ..Sample::default()
    }
}
