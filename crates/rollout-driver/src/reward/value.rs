//! What may be a reward.

use serde_json::Value;

/// Characters of a wrong value that its error shows.
const SHOWN: usize = 120;

/// What was there, and what should have been.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) found: String,
    pub(super) expected: String,
}

/// A reward as it goes into the sample: a number, or an object in which `key` is a number.
pub(super) fn checked(reward: Value, key: &str) -> Result<Value, Wrong> {
    let wrong = |reward: &Value, expected: String| {
        Err(Wrong {
            found: described(reward),
            expected,
        })
    };
    match &reward {
        Value::Number(_) => Ok(reward),
        Value::Object(_) if key.is_empty() => wrong(
            &reward,
            "a number; for an object, reward.key has to name its entry".to_owned(),
        ),
        Value::Object(parts) if parts.get(key).is_some_and(Value::is_number) => Ok(reward),
        Value::Object(_) => wrong(&reward, format!("an object whose `{key}` is a number")),
        other => wrong(other, "a number, or an object of numbers".to_owned()),
    }
}

/// A value for people: its kind, and the start of its text.
pub(super) fn described(value: &Value) -> String {
    let kind = match value {
        Value::Null => return "null".to_owned(),
        Value::Bool(_) => "the boolean",
        Value::Number(_) => "the number",
        Value::String(_) => "the text",
        Value::Array(_) => "the list",
        Value::Object(_) => "the object",
    };
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{kind} {}...", &text[..end]),
        None => format!("{kind} {text}"),
    }
}
