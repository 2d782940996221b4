//! The pool's own front door.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::rules::undescribed;
use crate::api::values::Template;

/// A router Deployment in front of the engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Router {
    /// Router Pods. Default: 1.
    #[schemars(range(min = 1, max = 64))]
    pub replicas: i32,
    /// How a request finds its engine. `SessionAffinity`: that of its session, for the prefix cache, else the least loaded. `LeastLoaded`: the one with
    /// the least work. `PowerOfTwo`: the less loaded of two at random. `RoundRobin`: one after the other. Default: `SessionAffinity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<RoutingPolicy>,
    /// Pod template that is merged over the operator's, containers by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            replicas: 1,
            policy: None,
            template: None,
        }
    }
}

/// How an engine is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = undescribed)]
pub enum RoutingPolicy {
    /// The session's engine, for the prefix cache; the least loaded for a new one.
    #[default]
    SessionAffinity,
    /// The engine with the least outstanding work.
    LeastLoaded,
    /// The less loaded of two at random.
    PowerOfTwo,
    /// One after the other.
    RoundRobin,
}
