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
