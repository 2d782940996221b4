//! The Service that agents connect to.

use serde_json::json;

use super::JobInput;
use crate::api::meta::labels as name;
use crate::resources::labels::{self, Component};
use crate::resources::pool::AGENTS_PORT;
use crate::resources::{Kind, Object, names};

/// Of this job and attempt alone: what an earlier one left has other secrets. A driver that is being started again must not cut agents off from a healthy router in the same Pod: addresses that are not ready are published.
pub(super) fn router(input: JobInput<'_>) -> Object {
    let mut selector = labels::of_job(&input.owner.name, Component::Driver);
    labels::set(&mut selector, name::JOB_UID, &input.owner.uid);
    labels::set(&mut selector, name::ATTEMPT, &input.attempt.to_string());
    let body = json!({"spec": {
        "publishNotReadyAddresses": true,
        "selector": selector,
        "ports": [{"name": "http", "port": AGENTS_PORT, "targetPort": AGENTS_PORT, "protocol": "TCP"}],
    }});
    let name = names::sessions(&input.owner.name);
    input.object(Kind::Service, name, Some(Component::Driver), body)
}
