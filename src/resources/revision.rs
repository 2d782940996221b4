//! Which spec an engine runs.
//!
//! The hash is of what the user wrote about model and engine, never of what the operator makes of it: an upgrade of the operator restarts no
//! engine. Replicas, routers, weights, policies and updates change nothing in an engine's Pod, so they are not in it. A new field of `model` or
//! `engine` must be left out of JSON at its default, else every engine restarts with the release that brings it; a test holds known hashes.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::names::hex;
use crate::api::pool::SGLangPoolSpec;

/// Digits of a revision.
const DIGITS: usize = 10;

/// Hash of what an engine's Pod depends on.
pub fn of_engine(spec: &SGLangPoolSpec) -> String {
    let mut wanted = json!({"model": spec.model, "engine": spec.engine});
    let is_simulated = spec
        .engine
        .as_ref()
        .is_some_and(|engine| engine.simulator.is_some());
    if let Some(tokenizer) = spec.tokenizer.as_ref().filter(|_| is_simulated) {
        // A simulated engine loads it; a real one has its model's.
        wanted["tokenizer"] = json!(tokenizer);
    }
    of(&wanted)
}

/// Hash of JSON, whatever the order of its keys.
pub(super) fn of(value: &Value) -> String {
    let text = sorted(value).to_string();
    hex(&Sha256::digest(text.as_bytes()), DIGITS)
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<&String> = members.keys().collect();
            keys.sort();
            let sorted: Map<String, Value> = keys
                .into_iter()
                .map(|key| (key.clone(), sorted(&members[key])))
                .collect();
            Value::Object(sorted)
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}
