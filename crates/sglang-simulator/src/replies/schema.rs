//! Texts that a grammar forces: JSON for a schema, and calls of tools.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::ForcedText;
use crate::numbers;
use crate::wire::tool_calls;

/// A model with random weights does not close a string soon.
const STRING_CHARACTERS: std::ops::Range<usize> = 150..400;

/// Deeper than this, a schema gets nulls.
const DEEPEST: usize = 8;

impl ForcedText {
    /// JSON for a schema.
    pub(crate) fn of_schema(schema: &str) -> Result<Self, String> {
        let schema: Value =
            serde_json::from_str(schema).map_err(|error| format!("json_schema: {error}"))?;
        Ok(Self(Arc::new(move |seed| {
            tool_calls::spaced(&sample(&schema, seed, 0))
        })))
    }

    /// A call of one of some tools (name and schema of the arguments).
    pub(crate) fn of_tools(tools: Vec<(String, Value)>) -> Self {
        Self(Arc::new(move |seed| {
            let (name, schema) = &tools[numbers::below(numbers::mix(seed, 0x7001), tools.len())];
            tool_calls::render(name, &sample(schema, seed, 0))
        }))
    }
}

/// A value that fits a schema, as far as types, properties, enumerations and constants go.
fn sample(schema: &Value, seed: u64, depth: usize) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    if let Some(choices) = schema
        .get("enum")
        .and_then(Value::as_array)
        .filter(|choices| !choices.is_empty())
    {
        return choices[numbers::below(seed, choices.len())].clone();
    }
    for union in ["anyOf", "oneOf"] {
        if let Some(first) = schema.get(union).and_then(|options| options.get(0)) {
            return sample(first, seed, depth + 1);
        }
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
        kind => kind.and_then(Value::as_str),
    };
    match kind {
        Some("string") => Value::from(letters(seed)),
        Some("integer") => Value::from(numbers::below(seed, 1000)),
        Some("number") => {
            Value::from(f64::from(u32::try_from(numbers::below(seed, 1000)).unwrap_or(0)) / 10.0)
        }
        Some("boolean") => Value::from(seed & 1 == 0),
        Some("array") => {
            let items = schema.get("items").unwrap_or(&Value::Null);
            Value::Array(vec![sample(items, numbers::mix(seed, 1), depth + 1)])
        }
        Some("object") | None if schema.get("properties").is_some() || kind.is_some() => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let fields = properties.into_iter().flatten().map(|(name, schema)| {
                let seed = numbers::mix(seed, numbers::of_text(name));
                (name.clone(), sample(schema, seed, depth + 1))
            });
            Value::Object(fields.collect::<Map<_, _>>())
        }
        _ => Value::Null,
    }
}

fn letters(seed: u64) -> String {
    let count = STRING_CHARACTERS.start + numbers::below(seed, STRING_CHARACTERS.len());
    (0..count)
        .map(|i| {
            char::from(
                b'a' + u8::try_from(numbers::below(numbers::mix(seed, i as u64), 26)).unwrap_or(0),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_has_the_properties_of_its_schema() {
        let schema = json!({"type": "object", "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": "boolean"}}}});
        let value = sample(&schema, 3, 0);
        assert!(
            value["city"].is_string() && value["days"].is_u64() && value["tags"][0].is_boolean(),
            "{value}"
        );
        assert!(["C", "F"].contains(&value["unit"].as_str().unwrap()));
        assert_eq!(sample(&schema, 3, 0), value);
    }
}
