//! Types of the messages of a chat, in the words of pydantic, which tries each as anyone's but the user's, and then as the user's.
//!
//! The words for contents and calls are shortened: pydantic names every kind of part there is.

use serde_json::Value;

use crate::http::problem::{Location, Problem};
use crate::http::pydantic::{self, Field, Kind, optional, required};

/// A message.
pub(super) const MESSAGE: Kind = Kind::Union(&[
    Kind::Object(
        "function-after[validate_thinking_parts_role(), ChatCompletionMessageGenericParam]",
        &[
            required("role", Kind::By(check_role)),
            optional("content", CONTENT),
            optional("tool_call_id", Kind::Str),
            optional("reasoning_content", Kind::Str),
            optional("tool_calls", Kind::List(&CALL)),
        ],
    ),
    Kind::Object(
        "function-after[validate_thinking_parts_role(), ChatCompletionMessageUserParam]",
        &[
            required("role", Kind::Literal(&["user"], "'user'")),
            required("content", CONTENT),
        ],
    ),
]);

const CONTENT: Kind = Kind::By(check_content);

const CALL: Kind = Kind::Object("ToolCall", &[required("function", CALLED_FUNCTION)]);

const CALLED_FUNCTION: Kind = Kind::Object(
    "FunctionResponse",
    &[
        optional("name", Kind::Str),
        optional(
            "arguments",
            Kind::Union(&[Kind::Str, Kind::Dict("str,any")]),
        ),
    ],
);

/// Roles of anyone but the user.
const ROLES: [&str; 7] = [
    "system",
    "assistant",
    "tool",
    "function",
    "developer",
    "latest_reminder",
    "root",
];

const UNKNOWN_ROLE: &str = "'role' must be one of 'system', 'assistant', 'tool', 'function', 'developer', 'latest_reminder', 'root' (case-insensitive).";

fn check_role(at: &Location, role: &Value, problems: &mut Vec<Problem>) {
    match role.as_str().map(str::to_ascii_lowercase) {
        Some(name) if ROLES.contains(&&*name) => {}
        Some(_) => problems.push(at.value_error(UNKNOWN_ROLE, role)),
        None => problems.push(at.value_error("'role' must be a string", role)),
    }
}

fn check_content(at: &Location, content: &Value, problems: &mut Vec<Problem>) {
    match content {
        Value::String(_) => {}
        Value::Array(_) => Kind::List(&Kind::By(check_part)).check(content, at, problems),
        other => Kind::Str.check(other, &at.key("str"), problems),
    }
}

/// Kinds of content beside text; none is simulated, but they are known.
const OTHER_PARTS: [&str; 7] = [
    "thinking",
    "reasoning",
    "image_url",
    "video_url",
    "audio_url",
    "input_audio",
    "tool_reference",
];

const PART: [Field; 1] = [required("type", Kind::Literal(&["text"], "'text'"))];

const TEXT: [Field; 1] = [required("text", Kind::Str)];

fn check_part(at: &Location, part: &Value, problems: &mut Vec<Problem>) {
    let Some(fields) = part.as_object() else {
        problems.push(at.no_object(part));
        return;
    };
    match fields.get("type").and_then(Value::as_str) {
        Some("text") => pydantic::check(&TEXT, at, fields, problems),
        Some(kind) if OTHER_PARTS.contains(&kind) => {}
        _ => pydantic::check(&PART, at, fields, problems),
    }
}
