//! What of a value fits its schema: the rest is taken out, what is required and missing gets a stand-in.
//!
//! The result parses as the typed spec, so that everything else about an object can be said at once with its structural errors. What was
//! taken out or put in is in [`super::touched::Touched`]; nothing that depends on it may be said.

use serde_json::{Map, Value, json};

/// The part of a value that fits. None: nothing does.
pub(super) fn part(schema: &Value, value: &Value) -> Option<Value> {
    if schema["x-kubernetes-int-or-string"] == true {
        let fits = value.is_string() || value.is_i64() || value.is_u64();
        return fits.then(|| value.clone());
    }
    match schema["type"].as_str() {
        Some("object") => value.as_object().map(|object| members(schema, object)),
        Some("array") => {
            // Positions stay as they are: paths of errors name them.
            let item =
                |item| part(&schema["items"], item).unwrap_or_else(|| stand_in(&schema["items"]));
            value
                .as_array()
                .map(|items| items.iter().map(item).collect())
        }
        Some("string") => value
            .as_str()
            .filter(|text| is_choice(schema, text))
            .map(Value::from),
        Some("integer") => value
            .as_i64()
            .filter(|number| has_room(schema, *number))
            .map(Value::from),
        Some("number") => value.is_number().then(|| value.clone()),
        Some("boolean") => value.is_boolean().then(|| value.clone()),
        _ => Some(value.clone()),
    }
}

fn members(schema: &Value, object: &Map<String, Value>) -> Value {
    let mut fitting = Map::new();
    for (name, inner) in object {
        let property = schema["properties"].get(name);
        let rest = Some(&schema["additionalProperties"]).filter(|rest| rest.is_object());
        let kept = match property.or(rest) {
            Some(property) => part(property, inner),
            None if schema["x-kubernetes-preserve-unknown-fields"] == true => Some(inner.clone()),
            None => None,
        };
        if let Some(kept) = kept {
            fitting.insert(name.clone(), kept);
        }
    }
    for name in schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !fitting.contains_key(name) {
            fitting.insert(name.to_owned(), stand_in(&schema["properties"][name]));
        }
    }
    Value::Object(fitting)
}

/// The least value of a type.
fn stand_in(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") => members(schema, &Map::new()),
        Some("array") => json!([]),
        Some("integer" | "number") => match &schema["minimum"] {
            Value::Null => json!(0),
            least => least.clone(),
        },
        Some("boolean") => json!(false),
        _ => match &schema["enum"][0] {
            Value::Null => json!("a.b"),
            first => first.clone(),
        },
    }
}

fn is_choice(schema: &Value, text: &str) -> bool {
    schema["enum"]
        .as_array()
        .is_none_or(|choices| choices.iter().any(|choice| choice == text))
}

fn has_room(schema: &Value, number: i64) -> bool {
    schema["format"] != "int32" || i32::try_from(number).is_ok()
}
