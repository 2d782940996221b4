//! Messages as a template sees them, after what SGLang does to them first.
//!
//! - a field that is null is absent, only a missing `content` is the empty string;
//! - `tool_calls[].function.arguments` of an assistant is parsed from text to an object. Text that is no JSON object stays text: an
//!   agent that once sent such a call must not lose its session (SGLang refuses every later turn);
//! - a content that is a list of text parts is flattened with a space between, unless the template iterates over the content.

use std::sync::Arc;

use indexmap::IndexMap;

use super::content_format::ContentFormat;
use crate::TokenizerError;
use crate::json::Json;

type Fields = IndexMap<Arc<str>, Json>;

pub(super) fn normalized(
    messages: &[Json],
    format: ContentFormat,
) -> Result<Vec<Json>, TokenizerError> {
    messages
        .iter()
        .enumerate()
        .map(|(index, message)| {
            let place = format!("messages[{index}]");
            let fields = message
                .as_object()
                .ok_or_else(|| broken(place.clone(), "must be an object"))?;
            let role = message
                .get("role")
                .and_then(Json::as_str)
                .ok_or_else(|| broken(format!("{place}.role"), "must be a string"))?;
            normalized_message(fields, role, format, &place).map(Json::Object)
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
    message: &Fields,
    role: &str,
    format: ContentFormat,
    place: &str,
) -> Result<Fields, TokenizerError> {
    let mut seen: Fields = message
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (Arc::clone(key), value.clone()))
        .collect();
    let content = seen
        .entry("content".into())
        .or_insert_with(|| Json::from(""));
    if let Json::Array(parts) = content {
        *content = match format {
            ContentFormat::Parts if role != "tool" => Json::Array(text_parts(parts, place)?),
            _ => Json::from(part_texts(parts, place)?.join(" ").as_str()),
        };
    } else if content.as_str().is_none() {
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
fn part_texts<'a>(parts: &'a [Json], place: &str) -> Result<Vec<&'a str>, TokenizerError> {
    parts
        .iter()
        .enumerate()
        .map(|(index, part)| {
            let kind = part.get("type").and_then(Json::as_str);
            let text = match kind {
                Some("text" | "input_text") => part.get("text").and_then(Json::as_str),
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

fn text_parts(parts: &[Json], place: &str) -> Result<Vec<Json>, TokenizerError> {
    let texts = part_texts(parts, place)?;
    Ok(texts
        .into_iter()
        .map(|text| Json::object([("type", "text".into()), ("text", text.into())]))
        .collect())
}

fn parse_arguments(message: &mut Fields) {
    let Some(Json::Array(calls)) = message.get_mut("tool_calls") else {
        return;
    };
    for call in calls {
        if let Json::Object(call) = call
            && let Some(Json::Object(function)) = call.get_mut("function")
            && let Some(arguments) = function.get_mut("arguments")
            && let Some(text) = arguments.as_str()
            && let Ok(object @ Json::Object(_)) = Json::parse(text)
        {
            *arguments = object;
        }
    }
}
