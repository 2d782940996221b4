//! What an agent works in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rules::Rules;
use crate::api::values::Template;

/// Containers of the session's Pod besides the agent, an image per sample, or a sandbox of another operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct Sandbox {
    /// Pod template whose containers run beside the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// The image of the agent's container comes from the sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_from: Option<ImageFrom>,
    /// A `SandboxTemplate` of kubernetes-sigs/agent-sandbox; each session claims one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_template_ref: Option<ClaimTemplateRef>,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema)
        .rule(
            "has(self.template) || has(self.imageFrom) || has(self.claimTemplateRef)",
            "sandbox is empty: set template, imageFrom or claimTemplateRef, or remove it",
        )
        .field(
            "claimTemplateRef",
            "!has(self.claimTemplateRef) || !(has(self.template) || has(self.imageFrom))",
            "a claimed sandbox is a Pod of its own: remove template and imageFrom, or claimTemplateRef",
        );
}

/// An image that each sample names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageFrom {
    /// Key in the sample's metadata.
    #[schemars(length(min = 1, max = 256))]
    pub metadata_key: String,
    /// Images that may be named; * stands for any text without a colon.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 1024)))]
    pub allow: Vec<String>,
}

/// A `SandboxTemplate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplateRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
