//! Parts that our definitions leave schemaless, held against the Kubernetes types that they stand for.
//!
//! A field that Kubernetes 1.34 does not know is a warning: it is kept, and the API server decides.

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{EnvVarSource, PersistentVolumeClaimTemplate, PodTemplateSpec};
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::structure::{Structure, Unknown};
use super::violation::Violation;
use crate::api::manifest::path;

/// Required fields that a template may leave out, because it is merged over one that has them.
const MERGED: [&str; 1] = ["containers"];

macro_rules! kubernetes_type {
    ($(#[$doc:meta])* $name:ident, $type:ty, $optional:expr) => {
        $(#[$doc])*
        pub(super) fn $name(value: &Value, at: &str) -> Vec<Violation> {
            static SCHEMA: LazyLock<Value> = LazyLock::new(schema_of::<$type>);
            check(&SCHEMA, value, at, Unknown::Suspicious, $optional)
        }
    };
}

kubernetes_type!(
    /// A pod template.
    pod_template,
    PodTemplateSpec,
    &MERGED
);
kubernetes_type!(
    /// A claim template.
    claim_template,
    PersistentVolumeClaimTemplate,
    &[]
);
kubernetes_type!(
    /// Where the value of an environment variable comes from.
    env_source,
    EnvVarSource,
    &[]
);
kubernetes_type!(
    /// A label selector.
    label_selector,
    LabelSelector,
    &[]
);
kubernetes_type!(
    /// An address range.
    ip_block,
    IPBlock,
    &[]
);
kubernetes_type!(
    /// A port of a network policy.
    network_port,
    NetworkPolicyPort,
    &[]
);

/// Metadata of an object. The API server drops what it does not know here.
pub(super) fn object_meta(value: &Value, at: &str) -> Vec<Violation> {
    static SCHEMA: LazyLock<Value> = LazyLock::new(schema_of::<ObjectMeta>);
    check(&SCHEMA, value, at, Unknown::Refused, &[])
}

/// A container whose fields are merged over ours; its name is ours.
pub(super) fn container(value: &Map<String, Value>, at: &str) -> Vec<Violation> {
    static SCHEMA: LazyLock<Value> =
        LazyLock::new(schema_of::<k8s_openapi::api::core::v1::Container>);
    check(
        &SCHEMA,
        &Value::Object(value.clone()),
        at,
        Unknown::Suspicious,
        &["name"],
    )
}

/// A `ConfigMap` or a `Secret`: texts, and binary data in base64.
pub(super) fn key_value(object: &Value) -> Vec<Violation> {
    let (texts, binary) = match object["kind"].as_str() {
        Some("ConfigMap") => ("data", "binaryData"),
        _ => ("stringData", "data"),
    };
    let mut found = Vec::new();
    for section in [texts, binary] {
        let entries = match &object[section] {
            Value::Null => continue,
            Value::Object(entries) => entries,
            _ => {
                let message = "must be an object: write key: text, one on a line";
                found.push(Violation::error(section, message));
                continue;
            }
        };
        for (key, value) in entries {
            let message = match value {
                Value::String(text) if section == binary && !is_base64(text) => {
                    format!(
                        "is not base64: encode it (base64 -w0 FILE), or write the text itself into {texts}"
                    )
                }
                Value::String(_) => continue,
                Value::Bool(_) | Value::Number(_) => {
                    format!("must be a text, is {value}: put it in quotes")
                }
                _ => "must be a text: write | after the colon, and indent the text below it"
                    .to_owned(),
            };
            found.push(Violation::error(path::member(section, key), message));
        }
    }
    found
}

fn is_base64(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let body = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+/".contains(c))
}

fn check(
    schema: &Value,
    value: &Value,
    at: &str,
    unknown: Unknown,
    optional: &[&str],
) -> Vec<Violation> {
    let mut structure = Structure {
        optional,
        ..Structure::new(unknown)
    };
    structure.check(schema, value, at);
    structure.found
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}
