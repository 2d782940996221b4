//! Defaults of a schema, filled in as the API server does.

use serde_json::Value;

/// The value with the defaults of every object that is there. An absent object stays absent, unless it has a default itself.
pub(super) fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = property.get("default")
                    && !object.contains_key(name)
                {
                    object.insert(name.clone(), default.clone());
                }
                if let Some(inner) = object.get_mut(name) {
                    fill(property, inner);
                }
            }
            if schema["additionalProperties"].is_object() {
                let values = object.values_mut();
                values.for_each(|inner| fill(&schema["additionalProperties"], inner));
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| fill(&schema["items"], item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
