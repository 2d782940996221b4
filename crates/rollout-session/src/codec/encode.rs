//! Samples -> safetensors.

use std::borrow::Cow;

use safetensors::{Dtype, SafeTensorError, View};

use super::{INDEXER_TOPK, LOG_PROBS, LOSS_MASK, META, Meta, ROUTED_EXPERTS, SampleMeta, TOKENS};
use crate::collect::Collected;
use crate::sample::Sample;

/// Samples could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The metadata is not JSON.
    #[error("samples metadata: {0}")]
    Meta(#[from] serde_json::Error),
    /// The tensors do not fit.
    #[error("samples tensors: {0}")]
    Tensors(#[from] SafeTensorError),
}

struct Tensor<'a> {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Cow<'a, [u8]>,
}

impl View for Tensor<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes the buffer.
///
/// # Errors
/// Metadata that JSON cannot hold.
pub fn encode(collected: &Collected) -> Result<Vec<u8>, EncodeError> {
    let mut tensors: Vec<(String, Tensor<'_>)> = Vec::new();
    let mut samples = Vec::with_capacity(collected.samples.len());
    for (index, sample) in collected.samples.iter().enumerate() {
        samples.push(sample_meta(sample));
        add_tensors(&mut tensors, index, sample);
    }
    let meta = serde_json::to_vec(&Meta {
        samples,
        session_metadata: collected.session_metadata.clone(),
        empty_reason: collected.empty_reason,
    })?;
    tensors.push((
        META.to_owned(),
        Tensor {
            dtype: Dtype::U8,
            shape: vec![meta.len()],
            bytes: Cow::Owned(meta),
        },
    ));
    Ok(safetensors::serialize(tensors, None)?)
}

fn sample_meta(sample: &Sample) -> SampleMeta {
    let mut nulls = Vec::new();
    if sample.loss_mask.is_none() {
        nulls.push(LOSS_MASK.to_owned());
    }
    if sample.rollout_log_probs.is_none() {
        nulls.push(LOG_PROBS.to_owned());
    }
    if sample.rollout_routed_experts.is_none() {
        nulls.push(ROUTED_EXPERTS.to_owned());
    }
    if sample.rollout_indexer_topk.is_none() {
        nulls.push(INDEXER_TOPK.to_owned());
    }
    SampleMeta {
        response: sample.response.clone(),
        response_length: sample.response_length,
        status: sample.status,
        weight_versions: sample.weight_versions.clone(),
        prefix_cache_info: sample.prefix_cache_info,
        metadata: sample.metadata.clone(),
        reward: sample.reward.clone(),
        nulls,
    }
}

fn add_tensors<'a>(tensors: &mut Vec<(String, Tensor<'a>)>, index: usize, sample: &'a Sample) {
    let mut add = |field: &str, dtype, shape: &[usize], bytes: Cow<'a, [u8]>| {
        tensors.push((
            format!("{field}.{index}"),
            Tensor {
                dtype,
                shape: shape.to_vec(),
                bytes,
            },
        ));
    };
    let ids = &sample.tokens;
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    add(TOKENS, Dtype::I64, &[ids.len()], Cow::Owned(bytes));
    if let Some(mask) = &sample.loss_mask {
        add(LOSS_MASK, Dtype::U8, &[mask.len()], Cow::Borrowed(mask));
    }
    if let Some(log_probs) = &sample.rollout_log_probs {
        let bytes: Vec<u8> = log_probs.iter().flat_map(|p| p.to_le_bytes()).collect();
        add(LOG_PROBS, Dtype::F64, &[log_probs.len()], Cow::Owned(bytes));
    }
    for (field, rows) in [
        (ROUTED_EXPERTS, &sample.rollout_routed_experts),
        (INDEXER_TOPK, &sample.rollout_indexer_topk),
    ] {
        if let Some(rows) = rows {
            add(field, Dtype::I32, &rows.shape, Cow::Borrowed(&rows.bytes));
        }
    }
}
