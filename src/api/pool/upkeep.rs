//! Updates, weights, idleness, network policy of a pool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rules::{Rules, undescribed};
use crate::api::values::{NetworkPeer, int, yes};

/// How engines are replaced when the spec changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = update_rules)]
pub struct Update {
    /// Engines above replicas while one is replaced. Default: 1.
    #[serde(default = "int::<1>")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_surge: i32,
    /// Engines below replicas while one is replaced. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1000))]
    pub max_unavailable: i32,
    /// Keeps engines as they are until it is removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl Default for Update {
    fn default() -> Self {
        Self {
            max_surge: 1,
            max_unavailable: 0,
            paused: false,
        }
    }
}

fn update_rules(schema: &mut schemars::Schema) {
    Rules::of(schema).rule(
        "self.maxSurge + self.maxUnavailable > 0",
        "nothing could ever be replaced: set maxSurge or maxUnavailable to 1 or more",
    );
}

/// Which weights an engine must have before it takes work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Weights {
    /// An engine with another version takes no new sessions. Only where no router distributes weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub required_version: Option<String>,
    /// What happens to running requests during a weight update. Abort: they end. Retract: they are queued again, and their prefix is computed anew.
    /// `InPlace`: they freeze and go on with their old cache. Default: Retract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_mode: Option<PauseMode>,
}

/// What a weight update does to running requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum PauseMode {
    /// They end.
    Abort,
    /// They are queued again, and their prefix is computed anew.
    #[default]
    Retract,
    /// They freeze and go on with their old cache.
    InPlace,
}

/// When an unused pool scales to zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    /// Time without a bound job and without a request, in seconds; a job that binds wakes the pool.
    #[schemars(range(min = 60, max = 31_536_000))]
    pub after_seconds: i32,
}

/// Who may reach the engines, besides the routers and drivers of bound jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolNetworkPolicy {
    /// Whether the operator makes a `NetworkPolicy`. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Further clients: trainers (ports of weight updates included), Prometheus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub allow_from: Vec<NetworkPeer>,
}

impl Default for PoolNetworkPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            allow_from: Vec::new(),
        }
    }
}
