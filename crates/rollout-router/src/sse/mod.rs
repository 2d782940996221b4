//! Chat answers as server-sent events.
//!
//! An engine whose stream carries ids and log-probabilities is passed on as it comes ([`EventStream`]). Of another one the answer is
//! whole before the first delta can go out: until then comments keep the connection alive, then one chunk carries the message, as
//! Miles's session server sends it ([`of_reply`]). `[DONE]` ends the stream of a turn that was recorded, and no other.

mod split;
mod stream;

pub(crate) use split::Splitter;
pub(crate) use stream::EventStream;

use rollout_session::json::{Cursor, JsonError, Kind};
use serde_json::{Map, Value, json};

pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// The parts of a chat reply that a stream repeats.
#[derive(Debug, Default)]
struct Parts<'a> {
    id: &'a str,
    created: &'a str,
    model: &'a str,
    message: &'a str,
    finish_reason: &'a str,
    usage: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn read(text: &'a str) -> Result<Self, JsonError> {
        let mut parts = Self {
            id: "\"\"",
            created: "0",
            model: "\"\"",
            message: "{}",
            finish_reason: "null",
            usage: None,
        };
        let raw = |cursor: &mut Cursor<'a>| -> Result<&'a str, JsonError> {
            let span = cursor.span()?;
            Ok(text.get(span).unwrap_or_default())
        };
        Cursor::new(text).object::<JsonError>(|key, value| {
            match key.name.as_ref() {
                "id" => parts.id = raw(value)?,
                "created" => parts.created = raw(value)?,
                "model" => parts.model = raw(value)?,
                "usage" if value.kind()? == Kind::Object => parts.usage = Some(raw(value)?),
                "choices" if value.kind()? == Kind::Array => {
                    value.array::<JsonError>(|index, choice| {
                        if index > 0 {
                            return choice.skip();
                        }
                        choice.object::<JsonError>(|key, value| {
                            match key.name.as_ref() {
                                "message" => parts.message = raw(value)?,
                                "finish_reason" => parts.finish_reason = raw(value)?,
                                _ => value.skip()?,
                            }
                            Ok(())
                        })
                    })?;
                }
                _ => value.skip()?,
            }
            Ok(())
        })?;
        Ok(parts)
    }

    fn chunk(&self, choices: &str, usage: Option<&str>) -> String {
        let Self {
            id, created, model, ..
        } = self;
        let usage = usage.map_or_else(String::new, |usage| format!(",\"usage\":{usage}"));
        format!(
            "data: {{\"id\":{id},\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":{model},\"choices\":[{choices}]{usage}}}\n\n"
        )
    }
}

/// The whole stream of a reply. With `include_usage` the usage comes in a chunk of its own, as OpenAI's clients ask for it; without,
/// it is in the only chunk, as Miles sends it.
pub(crate) fn of_reply(body: &[u8], include_usage: bool) -> String {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let Ok(parts) = Parts::read(text) else {
        return error_event(body);
    };
    let delta = delta(parts.message);
    let finish_reason = parts.finish_reason;
    let choice = format!("{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish_reason}}}");
    let mut stream = parts.chunk(&choice, parts.usage.filter(|_| !include_usage));
    if include_usage {
        stream.push_str(&parts.chunk("", parts.usage));
    }
    stream.push_str(DONE);
    stream
}

/// The message as a delta: role, content, reasoning, and tool calls with their position.
fn delta(message: &str) -> Value {
    let message: Map<String, Value> = serde_json::from_str(message).unwrap_or_default();
    let mut delta = Map::new();
    let role = message.get("role").cloned();
    delta.insert("role".to_owned(), role.unwrap_or(json!("assistant")));
    if let Some(content) = message.get("content") {
        delta.insert("content".to_owned(), content.clone());
    }
    if let Some(reasoning) = message.get("reasoning_content").filter(|it| !it.is_null()) {
        delta.insert("reasoning_content".to_owned(), reasoning.clone());
    }
    if let Some(calls) = message.get("tool_calls").and_then(Value::as_array)
        && !calls.is_empty()
    {
        let numbered = calls.iter().enumerate().map(|(index, call)| {
            let mut call = call.clone();
            if let Some(call) = call.as_object_mut() {
                call.shift_insert(0, "index".to_owned(), json!(index));
            }
            call
        });
        delta.insert("tool_calls".to_owned(), numbered.collect());
    }
    Value::Object(delta)
}

/// An error after the stream has begun: the clients' libraries raise it.
fn error_event(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_else(|_| {
        json!({"error": {"message": String::from_utf8_lossy(body), "type": "engine_error", "code": "engine_error"}})
    });
    let body = match body {
        Value::Object(fields) if fields.contains_key("error") => Value::Object(fields),
        other => json!({"error": other}),
    };
    format!("data: {body}\n\n")
}

#[cfg(test)]
mod tests {
    use super::of_reply;

    #[test]
    fn the_stream_is_that_of_miles_byte_for_byte() {
        let reply = br#"{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop","meta_info":{"x":1}}],"usage":{"total_tokens":3}}"#;
        let stream = of_reply(reply, false);
        assert_eq!(
            stream,
            "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"hello\"},\"finish_reason\":\"stop\"}],\"usage\":{\"total_tokens\":3}}\n\ndata: [DONE]\n\n"
        );
    }

    #[test]
    fn reasoning_is_a_delta_of_its_own_and_empty_tool_calls_are_none() {
        let reply = br#"{"choices":[{"message":{"content":"","reasoning_content":"hm","tool_calls":[]},"finish_reason":"abort"}]}"#;
        let stream = of_reply(reply, true);
        assert!(
            stream
                .contains(r#""delta":{"role":"assistant","content":"","reasoning_content":"hm"}"#),
            "{stream}"
        );
        assert!(stream.contains(r#""finish_reason":"abort""#));
    }
}
