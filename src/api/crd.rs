//! The `CustomResourceDefinition` objects.
//!
//! The types give the schema; this module makes it one that an API server takes and that a person can read: structural, small, with few
//! defaults, with the rules of the root (which alone can read `metadata.name` and `status`).

use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use super::job::{RolloutJob, freeze_rules};
use super::meta;
use super::pool::SGLangPool;
use super::rules::VALIDATIONS;

/// Definition of `SGLangPool`.
pub fn pool() -> Value {
    definition::<SGLangPool>(Vec::new())
}

/// Definition of `RolloutJob`.
pub fn job() -> Value {
    let mut definition = definition::<RolloutJob>(freeze_rules());
    let root = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    // Described where they are at home; once more here would be a third of the file.
    for path in REPEATED {
        root.pointer_mut(path)
            .into_iter()
            .for_each(strip_descriptions);
    }
    definition
}

/// Parts of a job's schema that repeat others: those of `SGLangPool`, and those of the job's own data set, sampling and reward.
const REPEATED: [&str; 4] = [
    "/properties/spec/properties/pool",
    "/properties/spec/properties/evaluation/properties/datasets/items/properties/dataset",
    "/properties/spec/properties/evaluation/properties/datasets/items/properties/sampling",
    "/properties/spec/properties/evaluation/properties/datasets/items/properties/reward",
];

/// Members of references: what they are is said where the reference is.
const REFERENCE: [&str; 4] = ["name", "key", "claimName", "path"];

/// Both definitions, with the names of their files.
pub fn all() -> [(&'static str, Value); 2] {
    [("sglangpools.yaml", pool()), ("rolloutjobs.yaml", job())]
}

/// The schema of the served version of a definition.
pub fn schema(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

fn definition<K: CustomResourceExt>(root_rules: Vec<Value>) -> Value {
    let mut definition = json!(K::crd());
    let root = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    tidy(root);
    // The operator writes its status as a whole; defaults of single fields would be noise in it.
    let status = &mut root["properties"]["status"];
    drop_defaults(status);
    // Tools that wait for readiness must not take an object for ready before the operator saw it.
    status["properties"]["observedGeneration"]["default"] = json!(-1);
    status["default"] = json!({"observedGeneration": -1});
    root[VALIDATIONS] = Value::Array(name_rules().into_iter().chain(root_rules).collect());
    definition
}

/// What the names of children need: they append up to 18 characters and are Service names.
fn name_rules() -> Vec<Value> {
    let max = meta::MAX_NAME_LENGTH;
    vec![
        json!({
            "rule": format!("size(self.metadata.name) <= {max}"),
            "message": format!("metadata.name must have at most {max} characters: pods and services append to it"),
        }),
        json!({
            "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "message": "metadata.name becomes the name of a Service: write lower-case letters, digits and -, beginning with a letter and not ending with -",
        }),
    ]
}

/// Makes generated schemas what an API server and a reader want.
fn tidy(schema: &mut Value) {
    let Value::Object(object) = schema else {
        return;
    };
    // An absent field and a null would be two states of the same thing.
    object.remove("nullable");
    object.remove("title");
    if object.get("default").is_some_and(is_empty) {
        object.remove("default");
    }
    if let Some(Value::String(description)) = object.get_mut("description") {
        *description = description
            .replace('`', "")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
    }
    if object.get("type") == Some(&json!("integer")) {
        for bound in ["minimum", "maximum"] {
            if let Some(number) = object.get_mut(bound) {
                whole(number);
            }
        }
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(tidy);
        if properties
            .keys()
            .all(|name| REFERENCE.contains(&name.as_str()))
        {
            properties.values_mut().for_each(remove_description);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(keyword) {
            tidy(inner);
        }
    }
    if is_condition_list(object) {
        object
            .get_mut("items")
            .into_iter()
            .for_each(strip_descriptions);
    }
}

/// Defaults that say no more than absence does; stored objects stay free of them.
fn is_empty(default: &Value) -> bool {
    match default {
        Value::Null | Value::Bool(false) | Value::Object(_) => true,
        Value::Array(items) => items.is_empty(),
        Value::String(_) | Value::Number(_) | Value::Bool(true) => false,
    }
}

fn drop_defaults(schema: &mut Value) {
    let Value::Object(object) = schema else {
        return;
    };
    object.remove("default");
    match object.get_mut("properties") {
        Some(Value::Object(properties)) => properties.values_mut().for_each(drop_defaults),
        _ => object.get_mut("items").into_iter().for_each(drop_defaults),
    }
}

/// Bounds pass through floating point on their way; an integer's bound is an integer.
fn whole(number: &mut Value) {
    if let Some(integer) = number
        .as_f64()
        .and_then(|float| format!("{float:.0}").parse::<i64>().ok())
    {
        *number = json!(integer);
    }
}

fn is_condition_list(schema: &Map<String, Value>) -> bool {
    schema
        .get("items")
        .is_some_and(|items| items["properties"].get("lastTransitionTime").is_some())
}

/// Removes the descriptions below a schema; its own stays.
fn strip_descriptions(schema: &mut Value) {
    let Value::Object(object) = schema else {
        return;
    };
    for (keyword, value) in object {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(strip_all);
            }
            ("items" | "additionalProperties", inner) => strip_all(inner),
            _ => {}
        }
    }
}

fn strip_all(schema: &mut Value) {
    remove_description(schema);
    strip_descriptions(schema);
}

fn remove_description(schema: &mut Value) {
    if let Value::Object(object) = schema {
        object.remove("description");
    }
}
