//! Strategic merge of raw JSON: the rules of the API server for Pod templates, by the names of fields.

use serde_json::{Map, Value};

/// How two lists become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListRule {
    /// Entries with the same keys are merged.
    Merge(&'static [&'static str]),
    /// An entry replaces one with the same key as a whole: its members exclude each other.
    Replace(&'static str),
    /// Entries are added.
    Append,
    /// The later list is taken.
    Take,
}

/// The rule of a list, by its field.
pub(super) fn list_rule(field: &str) -> ListRule {
    match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "imagePullSecrets"
        | "resourceClaims" => ListRule::Merge(&["name"]),
        "env" | "volumes" => ListRule::Replace("name"),
        "volumeMounts" => ListRule::Merge(&["mountPath"]),
        "volumeDevices" => ListRule::Merge(&["devicePath"]),
        "ports" => ListRule::Merge(&["containerPort", "protocol"]),
        "hostAliases" => ListRule::Merge(&["ip"]),
        "topologySpreadConstraints" => ListRule::Merge(&["topologyKey", "whenUnsatisfiable"]),
        "tolerations" => ListRule::Append,
        _ => ListRule::Take,
    }
}

/// What a probe or a hook does; an object has one of them.
pub(super) const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// `patch` over `base`.
pub fn merge(base: Value, patch: &Value) -> Value {
    merge_field("", base, patch)
}

fn merge_field(field: &str, base: Value, patch: &Value) -> Value {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => Value::Object(merge_objects(base, patch)),
        (Value::Array(base), Value::Array(patch)) => {
            Value::Array(merge_lists(list_rule(field), base, patch))
        }
        (_, Value::Object(patch)) => Value::Object(merge_objects(Map::new(), patch)),
        (_, patch) => patch.clone(),
    }
}

fn merge_objects(mut base: Map<String, Value>, patch: &Map<String, Value>) -> Map<String, Value> {
    if HANDLERS.iter().any(|handler| patch.contains_key(*handler)) {
        base.retain(|key, _| !HANDLERS.contains(&key.as_str()));
    }
    for (key, value) in patch {
        if value.is_null() {
            base.shift_remove(key);
            continue;
        }
        let merged = merge_field(key, base.get(key).cloned().unwrap_or(Value::Null), value);
        base.insert(key.clone(), merged);
    }
    base
}

fn merge_lists(rule: ListRule, mut base: Vec<Value>, patch: &[Value]) -> Vec<Value> {
    match rule {
        ListRule::Take => return patch.to_vec(),
        ListRule::Append => {
            for entry in patch {
                if !base.contains(entry) {
                    base.push(entry.clone());
                }
            }
        }
        ListRule::Merge(_) | ListRule::Replace(_) => {
            for entry in patch {
                match base.iter_mut().find(|old| is_same(rule, old, entry)) {
                    None => base.push(merge_field("", Value::Null, entry)),
                    Some(old) if matches!(rule, ListRule::Replace(_)) => *old = entry.clone(),
                    Some(old) => *old = merge_field("", std::mem::take(old), entry),
                }
            }
        }
    }
    base
}

/// Whether two entries of a list are about the same thing.
pub(super) fn is_same(rule: ListRule, one: &Value, other: &Value) -> bool {
    match rule {
        ListRule::Merge(keys) => keys
            .iter()
            .all(|key| key_of(one, key) == key_of(other, key)),
        ListRule::Replace(key) => one[key] == other[key],
        ListRule::Append | ListRule::Take => one == other,
    }
}

/// A port without a protocol is one of TCP.
fn key_of(entry: &Value, key: &str) -> Value {
    match &entry[key] {
        Value::Null if key == "protocol" => Value::from("TCP"),
        value => value.clone(),
    }
}
