//! How many engines may be evicted at once: a drained node costs a pool one engine at a time, and each of them drains first.

use serde_json::json;

use super::PoolInput;
use crate::resources::labels::{self, Component};
use crate::resources::{Kind, Object, names};

pub(super) fn engines(input: PoolInput<'_>) -> Object {
    let owner = input.owner;
    let body = json!({"spec": {
        "maxUnavailable": 1,
        // An engine that does not answer holds up no node.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": labels::of_pool(&owner.name, Component::Engine)},
    }});
    let labels = input.labels(Some(Component::Engine));
    let name = names::engine(&owner.name);
    Object::new(Kind::PodDisruptionBudget, owner, name, labels, body).owned_by(owner)
}
