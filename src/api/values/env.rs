//! Environment variables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Template;
use crate::api::rules::Rules;

/// An environment variable of a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules)]
pub struct EnvVar {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Its value, in quotes when it looks like a number or a switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub value: Option<String>,
    /// Where its value comes from, as in a container (`secretKeyRef`, `configMapKeyRef`, `fieldRef`, ...).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<Template>,
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema).at_most_one(&["value", "valueFrom"], "set value or valueFrom, not both");
}
