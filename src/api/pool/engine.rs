//! Engines that the operator starts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::disaggregation::Disaggregation;
use super::simulator::Simulator;
use crate::api::rules::Rules;
use crate::api::values::{
    ClaimRef, ConfigMapKeyRef, EnvVar, Quantity, SecretKeyRef, Template, int,
};

/// One engine of a pool; all are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules)]
pub struct Engine {
    /// Image with SGLang, as in lmsysorg/sglang:v0.5.23.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// How the model is split over GPUs; none: one GPU, no split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<Parallelism>,
    /// Nodes that one engine spans. Default: 1.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 1, max = 128))]
    pub nodes: i32,
    /// GPUs on each node. Default: 1, and 0 for a simulated engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub gpus_per_node: Option<i32>,
    /// Resource name of the GPUs. Default: nvidia.com/gpu.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub gpu_resource: Option<String>,
    /// Longest prompt and answer together, in tokens; none: what the model says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16_777_216))]
    pub context_length: Option<i32>,
    /// SGLang's parser for tool calls (--tool-call-parser), as in qwen25; without one, tool calls stay in the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub tool_call_parser: Option<String>,
    /// SGLang's parser for reasoning (--reasoning-parser), as in qwen3; without one, reasoning stays in the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub reasoning_parser: Option<String>,
    /// Chat template instead of the model's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<ChatTemplate>,
    /// Size of /dev/shm, in memory. Default: half of the memory limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<Quantity>,
    /// Volume that keeps compiled kernels (`DeepGEMM`, Triton, Inductor) between restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jit_cache: Option<ClaimRef>,
    /// Key that the engine asks every client for (--api-key).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_secret_ref: Option<SecretKeyRef>,
    /// Further flags of SGLang, one word each, as in --mem-fraction-static=0.85. A flag that a field stands for is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 4096)))]
    pub extra_args: Vec<String>,
    /// Further environment variables of the engine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 128),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub env: Vec<EnvVar>,
    /// Longest time from start to ready, in seconds. Default: 3600.
    #[serde(default = "int::<3600>")]
    #[schemars(range(min = 1, max = 86_400))]
    pub startup_timeout_seconds: i32,
    /// Longest time that a leaving engine gets for the requests that it has, in seconds. Default: 120.
    #[serde(default = "int::<120>")]
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_timeout_seconds: i32,
    /// Pod template that is merged over the operator's, containers by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// Simulated engines, without GPUs and without an image. Write simulator: {} for the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulator: Option<Simulator>,
    /// Splits prefill and decode into engines of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disaggregation: Option<Disaggregation>,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .exactly_one(
            &["image", "simulator"],
            "set exactly one of image (real engines) and simulator (engines without GPUs)",
        )
        .field(
            "simulator",
            "!has(self.simulator) || !(has(self.parallelism) || has(self.disaggregation) || has(self.jitCache) || self.nodes > 1)",
            "a simulated engine is one process: remove parallelism, disaggregation, jitCache and nodes",
        )
        .field(
            "parallelism",
            "has(self.simulator) || has(self.disaggregation) || \
             (has(self.parallelism) ? self.parallelism.tensor * self.parallelism.pipeline * \
             (has(self.parallelism.dataAttention) && self.parallelism.dataAttention ? 1 : self.parallelism.data) : 1) \
             == self.nodes * (has(self.gpusPerNode) ? self.gpusPerNode : 1)",
            "tensor * pipeline * data must equal nodes * gpusPerNode (data is not counted with dataAttention): change parallelism, or the GPUs of an engine",
        );
}

/// How a model is split over GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = parallelism_rules)]
pub struct Parallelism {
    /// Ranks that share each layer (--tp-size). Default: 1.
    #[schemars(range(min = 1, max = 1024))]
    pub tensor: i32,
    /// Stages of layers, one after the other (--pp-size). Default: 1.
    #[schemars(range(min = 1, max = 256))]
    pub pipeline: i32,
    /// Replicas inside one engine, or groups of attention with dataAttention (--dp-size). Default: 1.
    #[schemars(range(min = 1, max = 1024))]
    pub data: i32,
    /// Data parallelism of attention only, over the tensor ranks (--enable-dp-attention).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub data_attention: bool,
    /// Ranks that share the experts of a layer (--ep-size). Default: 1.
    #[schemars(range(min = 1, max = 1024))]
    pub expert: i32,
}

impl Default for Parallelism {
    fn default() -> Self {
        Self {
            tensor: 1,
            pipeline: 1,
            data: 1,
            data_attention: false,
            expert: 1,
        }
    }
}

fn parallelism_rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .field(
            "data",
            "!(has(self.dataAttention) && self.dataAttention) || self.tensor % self.data == 0",
            "dataAttention divides the tensor ranks into data groups: tensor must be a multiple of data",
        )
        .field(
            "expert",
            "self.tensor % self.expert == 0",
            "experts are shared by the tensor ranks: tensor must be a multiple of expert",
        );
}

/// A chat template instead of the model's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChatTemplate {
    /// The Jinja text.
    pub config_map_key_ref: ConfigMapKeyRef,
}
