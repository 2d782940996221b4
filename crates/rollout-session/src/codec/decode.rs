//! safetensors -> samples. Strict: a buffer that promises other than it holds is refused whole.

use std::collections::HashSet;

use safetensors::{Dtype, SafeTensorError, SafeTensors};

use super::{INDEXER_TOPK, LOG_PROBS, LOSS_MASK, META, Meta, ROUTED_EXPERTS, SampleMeta, TOKENS};
use crate::collect::Collected;
use crate::sample::{ReplayRows, Sample};

/// A samples buffer could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not a safetensors buffer, or cut short.
    #[error("samples buffer: {0}")]
    Tensors(#[from] SafeTensorError),
    /// The metadata is not what it should be.
    #[error("samples metadata: {0}")]
    Meta(#[from] serde_json::Error),
    /// A tensor has another type or rank.
    #[error("tensor {name} is {actual}, expected {expected}")]
    Tensor {
        /// Its name.
        name: String,
        /// What it is.
        actual: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A tensor that no sample refers to, or one that a sample declares null.
    #[error("tensor {0} belongs to no sample")]
    Unexpected(String),
}

/// Reads the buffer.
///
/// # Errors
/// Says which part of the buffer is wrong.
pub fn decode(buffer: &[u8]) -> Result<Collected, DecodeError> {
    let tensors = SafeTensors::deserialize(buffer)?;
    let meta: Meta = serde_json::from_slice(values(&tensors, META, Dtype::U8)?)?;
    let mut reader = Reader {
        tensors: &tensors,
        used: HashSet::from([META.to_owned()]),
    };
    let samples = meta
        .samples
        .into_iter()
        .enumerate()
        .map(|(index, sample)| reader.sample(index, sample))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(name) = tensors
        .names()
        .into_iter()
        .find(|name| !reader.used.contains(*name))
    {
        return Err(DecodeError::Unexpected(name.to_owned()));
    }
    Ok(Collected {
        samples,
        session_metadata: meta.session_metadata,
        empty_reason: meta.empty_reason,
    })
}

struct Reader<'a> {
    tensors: &'a SafeTensors<'a>,
    used: HashSet<String>,
}

impl<'a> Reader<'a> {
    fn sample(&mut self, index: usize, meta: SampleMeta) -> Result<Sample, DecodeError> {
        let tokens = self
            .field(TOKENS, index, &meta, Dtype::I64)?
            .map(|bytes| words(bytes).map(i64::from_le_bytes).collect());
        let loss_mask = self
            .field(LOSS_MASK, index, &meta, Dtype::U8)?
            .map(<[u8]>::to_vec);
        let rollout_log_probs = self
            .field(LOG_PROBS, index, &meta, Dtype::F64)?
            .map(|bytes| words(bytes).map(f64::from_le_bytes).collect());
        let rollout_routed_experts = self.rows(ROUTED_EXPERTS, index, &meta)?;
        let rollout_indexer_topk = self.rows(INDEXER_TOPK, index, &meta)?;
        Ok(Sample {
            rollout_routed_experts,
            rollout_indexer_topk,
            tokens: tokens.unwrap_or_default(),
            response: meta.response,
            response_length: meta.response_length,
            reward: meta.reward,
            loss_mask,
            weight_versions: meta.weight_versions,
            rollout_log_probs,
            status: meta.status,
            metadata: meta.metadata,
            prefix_cache_info: meta.prefix_cache_info,
            ..Sample::default()
        })
    }

    /// Replay rows.
    fn rows(
        &mut self,
        field: &str,
        index: usize,
        meta: &SampleMeta,
    ) -> Result<Option<ReplayRows>, DecodeError> {
        if meta.nulls.iter().any(|null| null == field) {
            return Ok(None);
        }
        let name = format!("{field}.{index}");
        let tensor = self.tensors.tensor(&name)?;
        let wrong = |actual: String| DecodeError::Tensor {
            name: name.clone(),
            actual,
            expected: "I32 of rank 3",
        };
        let actual = || format!("{:?} of shape {:?}", tensor.dtype(), tensor.shape());
        let &[rows, layers, values] = tensor.shape() else {
            return Err(wrong(actual()));
        };
        if tensor.dtype() != Dtype::I32 {
            return Err(wrong(actual()));
        }
        let rows = ReplayRows::new([rows, layers, values], tensor.data().to_vec())
            .map_err(|error| wrong(error.to_string()))?;
        self.used.insert(name);
        Ok(Some(rows))
    }

    fn field(
        &mut self,
        field: &str,
        index: usize,
        meta: &SampleMeta,
        dtype: Dtype,
    ) -> Result<Option<&'a [u8]>, DecodeError> {
        if meta.nulls.iter().any(|null| null == field) {
            return Ok(None);
        }
        let name = format!("{field}.{index}");
        let bytes = values(self.tensors, &name, dtype)?;
        self.used.insert(name);
        Ok(Some(bytes))
    }
}

fn values<'a>(
    tensors: &SafeTensors<'a>,
    name: &str,
    dtype: Dtype,
) -> Result<&'a [u8], DecodeError> {
    let tensor = tensors.tensor(name)?;
    if tensor.dtype() == dtype && tensor.shape().len() == 1 {
        return Ok(tensor.data());
    }
    Err(DecodeError::Tensor {
        name: name.to_owned(),
        actual: format!("{:?} of shape {:?}", tensor.dtype(), tensor.shape()),
        expected: match dtype {
            Dtype::I64 => "I64 of rank 1",
            Dtype::F64 => "F64 of rank 1",
            _ => "U8 of rank 1",
        },
    })
}

fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 8]> + '_ {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().copied()
}
