//! Messages as a template sees them, after what SGLang does to them first.
//!
//! - a field that is null is absent, only a missing `content` is the empty string;
//! - `tool_calls[].function.arguments` of an assistant is parsed from text to an object. Text that is no JSON object stays text: an
//!   agent that once sent such a call must not lose its session (SGLang refuses every later turn);
//! - a content that is a list of text parts is flattened with a space between, unless the template iterates over the content.

use serde_json::{Map, Value};

use super::content_format::ContentFormat;
use crate::TokenizerError;

pub(super) fn normalized(
    messages: &Value,
    format: ContentFormat,
) -> Result<Vec<Value>, TokenizerError> {
    let list = messages
        .as_array()
        .ok_or_else(|| broken("messages".into(), "must be an array"))?;
    list.iter()
        .enumerate()
        .map(|(index, message)| {
            let place = format!("messages[{index}]");
            let message = message
                .as_object()
                .ok_or_else(|| broken(place.clone(), "must be an object"))?;
            if !message.get("role").is_some_and(Value::is_string) {
                return Err(broken(format!("{place}.role"), "must be a string"));
            }
            normalized_message(message, format, &place).map(Value::Object)
        })
        .collect()
}

fn broken(place: String, problem: impl Into<String>) -> TokenizerError {
    TokenizerError::Messages {
        place,
        problem: problem.into(),
    }
}

fn normalized_message(
    message: &Map<String, Value>,
    format: ContentFormat,
    place: &str,
) -> Result<Map<String, Value>, TokenizerError> {
    let mut seen: Map<String, Value> = message
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let role = message
        .get("role")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let content = seen
        .entry("content")
        .or_insert_with(|| Value::String(String::new()));
    if let Value::Array(parts) = content {
        *content = match format {
            ContentFormat::Parts if role != "tool" => Value::Array(text_parts(parts, place)?),
            _ => Value::String(flattened(parts, place)?),
        };
    } else if !content.is_string() {
        return Err(broken(
            format!("{place}.content"),
            "must be a string or an array of text parts",
        ));
    }
    if role == "assistant" {
        parse_arguments(&mut seen);
    }
    Ok(seen)
}

/// The text of every part; a part is a string or `{"type": "text", "text": ...}`.
fn part_texts<'a>(parts: &'a [Value], place: &str) -> Result<Vec<&'a str>, TokenizerError> {
    parts
        .iter()
        .enumerate()
        .map(|(index, part)| {
            let kind = part.get("type").and_then(Value::as_str);
            let text = match kind {
                Some("text" | "input_text") => part.get("text").and_then(Value::as_str),
                _ => part.as_str(),
            };
            text.ok_or_else(|| {
                let problem = match kind {
                    Some(kind) if kind != "text" => {
                        format!("is of type {kind:?}: only text is supported")
                    }
                    _ => "must be {\"type\": \"text\", \"text\": \"...\"}".into(),
                };
                broken(format!("{place}.content[{index}]"), problem)
            })
        })
        .collect()
}

fn flattened(parts: &[Value], place: &str) -> Result<String, TokenizerError> {
    Ok(part_texts(parts, place)?.join(" "))
}

fn text_parts(parts: &[Value], place: &str) -> Result<Vec<Value>, TokenizerError> {
    let texts = part_texts(parts, place)?;
    Ok(texts
        .into_iter()
        .map(|text| serde_json::json!({"type": "text", "text": text}))
        .collect())
}

fn parse_arguments(message: &mut Map<String, Value>) {
    let Some(Value::Array(calls)) = message.get_mut("tool_calls") else {
        return;
    };
    for call in calls {
        if let Some(arguments) = call.pointer_mut("/function/arguments")
            && let Some(text) = arguments.as_str()
            && let Ok(object) = serde_json::from_str::<Map<String, Value>>(text)
        {
            *arguments = Value::Object(object);
        }
    }
}
