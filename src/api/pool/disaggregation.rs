//! Engines split into prefill and decode.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::engine::Parallelism;
use crate::api::rules::Rules;
use crate::api::values::{EnvVar, Template};

/// Prefill and decode in engines of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disaggregation {
    /// Engines that process prompts.
    pub prefill: DisaggregationSide,
    /// Engines that generate.
    pub decode: DisaggregationSide,
}

/// One side; what is not set here is the engine's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct DisaggregationSide {
    /// Engines of this side in each replica of the pool. Default: 1.
    #[schemars(range(min = 1, max = 1000))]
    pub replicas: i32,
    /// How the model is split over GPUs; none: the engine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<Parallelism>,
    /// Nodes that one engine of this side spans; none: the engine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub nodes: Option<i32>,
    /// GPUs on each node; none: the engine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub gpus_per_node: Option<i32>,
    /// Further flags of SGLang, after the engine's extraArgs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 4096)))]
    pub extra_args: Vec<String>,
    /// Further environment variables, after the engine's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 128),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub env: Vec<EnvVar>,
    /// Pod template that is merged over the engine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
}

impl Default for DisaggregationSide {
    fn default() -> Self {
        Self {
            replicas: 1,
            parallelism: None,
            nodes: None,
            gpus_per_node: None,
            extra_args: Vec::new(),
            env: Vec::new(),
            template: None,
        }
    }
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema).field(
        "parallelism",
        "!has(self.parallelism) || self.parallelism.tensor * self.parallelism.pipeline * \
         (has(self.parallelism.dataAttention) && self.parallelism.dataAttention ? 1 : self.parallelism.data) \
         == (has(self.nodes) ? self.nodes : 1) * (has(self.gpusPerNode) ? self.gpusPerNode : 1)",
        "tensor * pipeline * data must equal nodes * gpusPerNode of this side (data is not counted with dataAttention): set them beside parallelism",
    );
}
