//! References to other objects, all in the namespace of the object that has them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rules::Rules;

/// A `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapRef {
    /// Name of the `ConfigMap`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// One key of a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyRef {
    /// Name of the `ConfigMap`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A `Secret` with all of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the `Secret`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// One key of a `Secret`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the `Secret`.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A `PersistentVolumeClaim`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRef {
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
}

/// A file or a directory on a `PersistentVolumeClaim`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = claim_path_rules)]
pub struct ClaimPath {
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
    /// Path on the volume; none: its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: Option<String>,
}

fn claim_path_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).field(
        "path",
        r"!has(self.path) || !self.path.matches('^/|(^|/)[.][.](/|$)')",
        "path is inside the volume: write it without a leading / and without ..",
    );
}

/// Files on a model hub that speaks Hugging Face's protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HuggingFaceHub {
    /// Token for gated files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretKeyRef>,
    /// Another hub than huggingface.co.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^https?://"))]
    pub endpoint: Option<String>,
    /// Claim that keeps downloads between restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cache_claim_name: Option<String>,
}

/// Python code that is put on the import path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = code_rules)]
pub struct CodeSource {
    /// Every key of a `ConfigMap` as a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapRef>,
    /// A directory on a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimPath>,
}

fn code_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).exactly_one(
        &["configMap", "persistentVolumeClaim"],
        "set exactly one of configMap and persistentVolumeClaim; leave code out when the image has it",
    );
}
