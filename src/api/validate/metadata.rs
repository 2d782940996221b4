//! Who an object says it is.

use serde_json::{Value, json};

use super::schemaless;
use super::violation::Violation;

/// Identity and metadata of an object of any kind.
pub(super) fn check(object: &Value) -> Vec<Violation> {
    if !object.is_object() {
        return vec![Violation::error(
            "",
            "is no Kubernetes object: it needs apiVersion, kind and metadata.name",
        )];
    }
    let mut found = Vec::new();
    for field in ["apiVersion", "kind"] {
        if object[field].as_str().is_none_or(str::is_empty) {
            found.push(Violation::error(field, "is required: a text"));
        }
    }
    if is_unnamed(object) {
        return found;
    }
    let metadata = &object["metadata"];
    if metadata.is_null() {
        found.push(Violation::error("metadata.name", "is required: a name"));
        return found;
    }
    found.extend(schemaless::object_meta(metadata, "metadata"));
    let named = ["name", "generateName"].iter().any(|field| {
        metadata[*field]
            .as_str()
            .is_some_and(|name| !name.is_empty())
    });
    if !named && metadata.is_object() {
        found.push(Violation::error("metadata.name", "is required: a name"));
    }
    found
}

/// Files that lie beside manifests and are no objects of a cluster.
fn is_unnamed(object: &Value) -> bool {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    version.starts_with("kustomize.config.k8s.io/")
}

/// The object with a name, as the API server makes one from `generateName` before it looks at rules.
pub(super) fn named(object: &Value) -> Value {
    let mut object = object.clone();
    if object["metadata"].get("name").is_none() {
        let prefix = object["metadata"]["generateName"]
            .as_str()
            .unwrap_or_default();
        object["metadata"]["name"] = json!(format!("{prefix}xxxxx"));
    }
    object
}
