//! Samples on the wire: one safetensors buffer, as Miles's session server sends it.
//!
//! Per sample `i` the tensors `tokens.i` (I64), `loss_mask.i` (U8) `rollout_log_probs.i` (F64), `rollout_routed_experts.i` and
//! `rollout_indexer_topk.i` (I32, three axes), and for all of them `_samples_meta`: compact JSON with everything else. A tensor field that is null is named in the sample's `nulls`; an empty tensor is
//! not null. Numbers cross bit by bit.

mod decode;
mod encode;
mod view;

pub use decode::{DecodeError, decode};
pub use encode::{EncodeError, encode};
pub use view::{from_json, to_json};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::collect::EmptyReason;
use crate::sample::{PrefixCacheInfo, SampleStatus};

/// Media type of the buffer.
pub const CONTENT_TYPE: &str = "application/octet-stream";

const META: &str = "_samples_meta";
const TOKENS: &str = "tokens";
const LOSS_MASK: &str = "loss_mask";
const LOG_PROBS: &str = "rollout_log_probs";
const ROUTED_EXPERTS: &str = "rollout_routed_experts";
const INDEXER_TOPK: &str = "rollout_indexer_topk";

/// What `_samples_meta` holds of one sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SampleMeta {
    response: String,
    response_length: usize,
    status: SampleStatus,
    #[serde(default)]
    weight_versions: Vec<String>,
    #[serde(default)]
    prefix_cache_info: PrefixCacheInfo,
    #[serde(default)]
    metadata: Map<String, Value>,
    #[serde(default)]
    reward: Value,
    nulls: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Meta {
    samples: Vec<SampleMeta>,
    session_metadata: Map<String, Value>,
    empty_reason: Option<EmptyReason>,
}
