//! The error bodies of SGLang: five shapes, and whatever a proxy in between answers.

use serde_json::Value;

/// What an error body says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorBody {
    /// The text, bounded to 2 KiB.
    pub message: String,
    /// `error.type` or `type`, where the body has one.
    pub kind: Option<String>,
    /// `error.code` or `code`, as text.
    pub code: Option<String>,
}

const LIMIT: usize = 2048;

impl ErrorBody {
    /// Reads, in this order: `error.message`, a text `error`, `message`, a text `detail`; else the body itself is the message.
    pub fn parse(body: &[u8]) -> Self {
        let Ok(Value::Object(fields)) = serde_json::from_slice::<Value>(body) else {
            return Self {
                message: bounded(&String::from_utf8_lossy(body)),
                ..Self::default()
            };
        };
        let inner = fields.get("error").and_then(Value::as_object);
        let source = inner.unwrap_or(&fields);
        let text = |key: &str| source.get(key).and_then(scalar);
        let message = text("message")
            .or_else(|| fields.get("error").and_then(scalar))
            .or_else(|| fields.get("message").and_then(scalar))
            .or_else(|| fields.get("detail").and_then(scalar))
            .unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
        Self {
            message: bounded(&message),
            kind: text("type"),
            code: text("code"),
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn bounded(text: &str) -> String {
    let text = text.trim();
    let mut end = text.len().min(LIMIT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
