//! The Deployment of a pool's engines.

use serde_json::{Value, json};

use super::PoolInput;
use crate::api::meta::annotations;
use crate::api::pool::Engine;
use crate::resources::labels::{self, Component};
use crate::resources::overlay::Overlaid;
use crate::resources::{Kind, Object, names};

/// What a new engine may take beyond its start-up time before the Deployment is said to be stuck: pulling an image of many gigabytes.
const PULL_SECONDS: i32 = 3600;
/// How long a new engine is ready before an old one leaves: routers look its name up every 2 s, and DNS keeps an answer for 5.
const KNOWN_SECONDS: i32 = 10;
/// Number of the last roll-out, which the Deployment's controller notes.
const ROLLED_OUT: &str = "deployment.kubernetes.io/revision";

pub(super) fn engines(
    input: PoolInput<'_>,
    engine: &Engine,
    pod: Overlaid,
    revision: &str,
) -> Object {
    let owner = input.owner;
    let update = input.spec.update.unwrap_or_default();
    let replicas = if input.spec.suspend {
        0
    } else {
        input.spec.replicas
    };
    let template = pod.template();
    let rendered = template.to_string();
    let body = json!({"spec": {
        "replicas": replicas,
        "selector": {"matchLabels": labels::of_pool(&owner.name, Component::Engine)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {
            "maxSurge": update.max_surge,
            "maxUnavailable": update.max_unavailable,
        }},
        "minReadySeconds": KNOWN_SECONDS,
        "paused": update.paused && input.live_engines.is_some_and(has_rolled_out),
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": engine.startup_timeout_seconds.saturating_add(PULL_SECONDS),
        "template": template,
    }});
    let mut labels = input.labels(Some(Component::Engine));
    labels::queue(owner, &mut labels);
    let name = names::engine(&owner.name);
    Object::new(Kind::Deployment, owner, name, labels, body)
        .owned_by(owner)
        .annotated(annotations::REVISION, revision)
        .annotated(annotations::TEMPLATE, rendered)
}

/// Whether the Deployment's controller has made Pods of it: one that is paused before makes none at all.
fn has_rolled_out(live: &Value) -> bool {
    live["metadata"]["annotations"][ROLLED_OUT].is_string()
}

/// Leaves the Pods as they are while the user's spec does: an operator that renders them differently than the one before it restarts no engine.
/// The template is the one that the annotation recorded, so that a change of the live Pods by hand is repaired all the same.
#[must_use]
pub fn keep_engines(mut desired: Object, live: &Value) -> Object {
    let recorded = &live["metadata"]["annotations"];
    if recorded[annotations::REVISION].as_str() != desired.annotation(annotations::REVISION) {
        return desired;
    }
    let Some(text) = recorded[annotations::TEMPLATE].as_str() else {
        return desired;
    };
    let Ok(template @ Value::Object(_)) = serde_json::from_str::<Value>(text) else {
        return desired;
    };
    let text = text.to_owned();
    desired.value["spec"]["template"] = template;
    desired.annotated(annotations::TEMPLATE, text)
}
