//! The headless Service of the engines: its names are the engine list.

use serde_json::json;

use super::{ENGINE_PORT, PoolInput, SIDECAR_PORT};
use crate::resources::labels::{self, Component};
use crate::resources::{Kind, Object, names};

/// An engine that is not ready, or is leaving, is not in it.
pub(super) fn engines(input: PoolInput<'_>) -> Object {
    let owner = input.owner;
    let body = json!({"spec": {
        "clusterIP": "None",
        "publishNotReadyAddresses": false,
        "selector": labels::of_pool(&owner.name, Component::Engine),
        "ports": [
            {"name": "http", "port": ENGINE_PORT, "targetPort": ENGINE_PORT, "protocol": "TCP"},
            {"name": "state", "port": SIDECAR_PORT, "targetPort": SIDECAR_PORT, "protocol": "TCP"},
        ],
    }});
    let labels = input.labels(Some(Component::Engine));
    let name = names::engines(&owner.name);
    Object::new(Kind::Service, owner, name, labels, body).owned_by(owner)
}
