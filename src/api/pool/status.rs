//! What the operator reports about a pool. Bounded, free of clocks, written only when it changed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::values::long;

/// State of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SGLangPoolStatus {
    /// Generation of the spec that the rest is about; -1: not seen yet.
    #[serde(default = "long::<-1>")]
    pub observed_generation: i64,
    /// What holds; keyed by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// Engines that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Engines that answer.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Engines of the current spec.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Label selector of the engines, for the scale sub-resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// URL of the pool's router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The first 64 engines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub engines: Vec<EngineStatus>,
    /// Hash of the spec that the oldest engine runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// Hash of the spec that engines are moving to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// Jobs that use the pool.
    #[serde(default)]
    pub bound_jobs: i32,
    /// Texts for the columns of kubectl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<PoolDisplay>,
}

impl Default for SGLangPoolStatus {
    fn default() -> Self {
        Self {
            observed_generation: -1,
            conditions: Vec::new(),
            replicas: 0,
            ready_replicas: 0,
            updated_replicas: 0,
            selector: None,
            endpoint: None,
            engines: Vec::new(),
            current_revision: None,
            update_revision: None,
            bound_jobs: 0,
            display: None,
        }
    }
}

/// One engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineStatus {
    /// Name of its Pod, or its URL for an external engine.
    pub name: String,
    /// Base URL.
    pub url: String,
    /// Whether it takes work.
    #[serde(default)]
    pub ready: bool,
    /// Version of its weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_version: Option<String>,
    /// Version of SGLang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether its generation is paused.
    #[serde(default)]
    pub paused: bool,
}

/// Texts for the columns of `kubectl get`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolDisplay {
    /// Ready and wanted engines, as in 1/2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engines: Option<String>,
    /// Version of the weights, or Mixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
}
