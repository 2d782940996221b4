//! Python plug-ins of the driver.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::values::{CodeSource, EnvVar, Resources, Template};

/// The plug-in host: a container beside the driver that calls the user's Python functions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plugins {
    /// Image with python3 (3.9 or later) and what the plug-ins import.
    #[schemars(length(min = 1, max = 1024))]
    pub image: String,
    /// Code that is put on the import path; none: the image has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeSource>,
    /// Environment variables of the plug-ins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 128),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub env: Vec<EnvVar>,
    /// Requests and limits of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Fields of the host's container that are merged over the operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Template>,
}

impl Plugins {
    /// The host's container as the user has it: `container`, with `env` where it does not replace a variable.
    pub fn own_container(&self) -> Value {
        let mut container = self.container.clone().unwrap_or_default().0;
        let mut variables: Vec<Value> = self
            .env
            .iter()
            .filter_map(|variable| serde_json::to_value(variable).ok())
            .collect();
        let over = container.remove("env").unwrap_or_default();
        for variable in over.as_array().into_iter().flatten() {
            let same = |other: &&mut Value| other["name"] == variable["name"];
            match variables.iter_mut().find(same) {
                Some(replaced) => replaced.clone_from(variable),
                None => variables.push(variable.clone()),
            }
        }
        container.insert("env".to_owned(), Value::Array(variables));
        Value::Object(container)
    }
}

/// A Python function or class by its import path: `module.name`, `package.module.name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PluginRef(pub String);

impl PluginRef {
    /// Module and attribute; none for a path without a dot, which the schema refuses.
    pub fn split(&self) -> Option<(&str, &str)> {
        self.0.rsplit_once('.')
    }
}

impl JsonSchema for PluginRef {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PluginRef".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 512,
            "pattern": r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$",
        })
    }
}
