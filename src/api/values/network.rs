//! Network policy peers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Template;

/// Who may connect, or be connected to: a `NetworkPolicyPeer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPeer {
    /// Label selector of Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<Template>,
    /// Label selector of namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<Template>,
    /// Address range: `cidr`, and `except` within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_block: Option<Template>,
}

/// One rule of a `NetworkPolicy` for outgoing connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EgressRule {
    /// Ports that are opened; none: every port.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub ports: Vec<Template>,
    /// Peers that may be reached; none: everybody.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub to: Vec<NetworkPeer>,
}
