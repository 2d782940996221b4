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

struct Tensor {
    dtype: Dtype,
    shape: [usize; 1],
    bytes: Vec<u8>,
}

impl View for Tensor {
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
    let mut tensors: Vec<(String, Tensor)> = Vec::new();
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
            shape: [meta.len()],
            bytes: meta,
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
    nulls.push(ROUTED_EXPERTS.to_owned());
    nulls.push(INDEXER_TOPK.to_owned());
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

fn add_tensors(tensors: &mut Vec<(String, Tensor)>, index: usize, sample: &Sample) {
    let mut add = |field: &str, dtype, length, bytes| {
        let shape = [length];
        tensors.push((
            format!("{field}.{index}"),
            Tensor {
                dtype,
                shape,
                bytes,
            },
        ));
    };
    let ids = &sample.tokens;
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    add(TOKENS, Dtype::I64, ids.len(), bytes);
    if let Some(mask) = &sample.loss_mask {
        add(LOSS_MASK, Dtype::U8, mask.len(), mask.clone());
    }
    if let Some(log_probs) = &sample.rollout_log_probs {
        let bytes = log_probs.iter().flat_map(|p| p.to_le_bytes()).collect();
        add(LOG_PROBS, Dtype::F64, log_probs.len(), bytes);
    }
}
