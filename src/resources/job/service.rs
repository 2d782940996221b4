//! The Service that agents connect to.

use serde_json::json;

use super::JobInput;
use crate::resources::labels::{self, Component};
use crate::resources::pool::AGENTS_PORT;
use crate::resources::{Kind, Object, names};

/// A driver that is being started again must not cut agents off from a healthy router in the same Pod: addresses that are not ready are published.
pub(super) fn router(input: JobInput<'_>) -> Object {
    let body = json!({"spec": {
        "publishNotReadyAddresses": true,
        "selector": labels::of_job(&input.owner.name, Component::Driver),
        "ports": [{"name": "http", "port": AGENTS_PORT, "targetPort": AGENTS_PORT, "protocol": "TCP"}],
    }});
    let name = names::sessions(&input.owner.name);
    input.object(Kind::Service, name, Some(Component::Driver), body)
}
