//! What the engines serve, and where its files come from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rules::{Rules, undescribed};
use crate::api::values::HuggingFaceHub;

/// A model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Hub id, or the directory inside the mounted source.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// Name that clients send; none: the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub served_name: Option<String>,
    /// Branch, tag or commit on the hub; none: the hub's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub revision: Option<String>,
    /// Where the files are; none: downloaded from the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ModelSource>,
}

/// Where a model's files are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = source_rules)]
pub struct ModelSource {
    /// The files are on a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ModelClaim>,
    /// The files are in an OCI image, mounted as a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSource>,
    /// The files are on a model hub, with a token, another endpoint or a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugging_face: Option<HuggingFaceHub>,
}

fn source_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).exactly_one(
        &["persistentVolumeClaim", "image", "huggingFace"],
        "set exactly one of persistentVolumeClaim, image and huggingFace; leave source out for a plain hub download",
    );
}

/// Model files on a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = claim_rules)]
pub struct ModelClaim {
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
    /// Directory on the volume that is mounted; none: its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub sub_path: Option<String>,
}

fn claim_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).field(
        "subPath",
        r"!has(self.subPath) || !self.subPath.matches('^/|(^|/)[.][.](/|$)')",
        "subPath is inside the volume: write it without a leading / and without ..",
    );
}

/// Model files in an OCI image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSource {
    /// Image reference.
    #[schemars(length(min = 1, max = 1024))]
    pub reference: String,
    /// When the node pulls it; none: Kubernetes's default (Always for :latest, else `IfNotPresent`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_policy: Option<PullPolicy>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum PullPolicy {
    /// At every start.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never: the node must have it.
    Never,
}
