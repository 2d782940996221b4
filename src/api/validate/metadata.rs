//! Who an object says it is.

use serde_json::{Value, json};

use super::schemaless;
use super::violation::Violation;
use crate::api::meta;

/// Identity and metadata of an object of any kind.
pub(super) fn check(object: &Value) -> Vec<Violation> {
    if !object.is_object() {
        return vec![Violation::error(
            "",
            "is no Kubernetes object: it needs apiVersion, kind and metadata.name",
        )];
    }
    let is_missing = |field: &str| match &object[field] {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    // What is there and no text is said to be that, not to be missing.
    let problem = |field: &str| match &object[field] {
        Value::String(text) if !text.is_empty() => None,
        _ if is_missing(field) => Some("is required".to_owned()),
        Value::Array(_) => Some("must be a text, is a list".to_owned()),
        Value::Object(_) => Some("must be a text, is an object".to_owned()),
        other => Some(format!("must be a text, is {other}")),
    };
    if is_missing("apiVersion") && is_missing("kind") && object.get("metadata").is_none() {
        let what = if object.get("prompt").is_some() {
            "is a row of a data set, not a Kubernetes object: put the rows into a ConfigMap and name it in spec.dataset.configMap"
        } else {
            "is no Kubernetes object: it needs apiVersion, kind and metadata.name"
        };
        return vec![Violation::error("", what)];
    }
    let mut found = Vec::new();
    let kind = object["kind"].as_str().unwrap_or_default();
    if let Some(problem) = problem("apiVersion") {
        let version = match kind {
            meta::JOB_KIND | meta::POOL_KIND => meta::API_VERSION,
            "ConfigMap" | "Secret" | "List" => "v1",
            _ => "the group and version of the kind",
        };
        found.push(Violation::error(
            "apiVersion",
            format!("{problem}: write {version}"),
        ));
    }
    if let Some(problem) = problem("kind") {
        let kinds = match object["apiVersion"].as_str() {
            Some(meta::API_VERSION) => format!("{} or {}", meta::JOB_KIND, meta::POOL_KIND),
            _ => "the kind of the object, as in ConfigMap".to_owned(),
        };
        found.push(Violation::error(
            "kind",
            format!("{problem}: write {kinds}"),
        ));
    }
    if kind == "List" && object["apiVersion"] == "v1" {
        // With a list of items it would have been taken apart.
        let what = "must be a list of objects: begin each with \"- apiVersion: ...\"";
        found.push(Violation::error("items", what));
        return found;
    }
    if is_unnamed(object) {
        return found;
    }
    let metadata = &object["metadata"];
    if metadata.is_null() {
        found.push(Violation::error("metadata.name", "is required: a name"));
        return found;
    }
    let mut written = metadata.clone();
    if let Some(members) = written.as_object_mut() {
        // The API server's own record of who wrote what: its keys are paths.
        members.shift_remove("managedFields");
    }
    found.extend(schemaless::object_meta(&written, "metadata"));
    found.extend(formats(metadata));
    // A name that is there and no text has been told of.
    let named = ["name", "generateName"]
        .iter()
        .any(|field| metadata.get(*field).is_some_and(|name| name != ""));
    if !named && metadata.is_object() {
        found.push(Violation::error("metadata.name", "is required: a name"));
    }
    found
}

/// What the API server refuses in any object, whatever its kind.
fn formats(metadata: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    if let Some(namespace) = metadata["namespace"].as_str()
        && !namespace.is_empty()
        && !is_dns_label(namespace)
    {
        let what = "is no namespace: write at most 63 lower-case letters, digits and -, with a letter or digit at both ends";
        found.push(Violation::error("metadata.namespace", what));
    }
    for field in ["labels", "annotations"] {
        for (key, value) in metadata[field].as_object().into_iter().flatten() {
            let at = format!("metadata.{field}[{key:?}]");
            if !is_qualified(key) {
                let what = "is no key: write name or prefix/name, with letters, digits, -, _ and . in the name and at most 63 of them";
                found.push(Violation::error(at, what));
                continue;
            }
            let text = value.as_str().filter(|_| field == "labels");
            if text.is_some_and(|text| !text.is_empty() && !is_name(text)) {
                let what = "is no value of a label: write at most 63 letters, digits, -, _ and ., with a letter or digit at both ends";
                found.push(Violation::error(at, what));
            }
        }
    }
    found
}

/// `name` or `prefix/name`.
fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((prefix, name)) => {
            let mut parts = prefix.split('.');
            prefix.len() <= 253 && parts.all(is_dns_label) && is_name(name)
        }
    }
}

fn is_name(text: &str) -> bool {
    let ends = text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric());
    let is_of_it = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    ends && text.len() <= 63 && text.chars().all(is_of_it)
}

fn is_dns_label(text: &str) -> bool {
    is_name(text) && !text.contains(|c: char| c.is_ascii_uppercase() || "_.".contains(c))
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
