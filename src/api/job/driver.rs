//! The driver's Pod.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::values::{Resources, Template};

/// The driver's Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Driver {
    /// Requests and limits of the driver's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Pod template that is merged over the operator's, containers by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// Where the ledger is kept; none: on the node, where it outlives crashes of the process but not the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
}

/// Where the ledger is kept; none: on the node, where it outlives crashes of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// A volume of its own, that outlives the node: a `PersistentVolumeClaim` with metadata and spec.
    pub volume_claim_template: Template,
}
