//! Type checks of the messages of a chat, in the words of pydantic, which tries each as a user's and as anyone else's.
//!
//! The words for contents and calls are shortened: pydantic names every kind of part there is.

use serde_json::{Map, Value};

use super::validate::{missing, no_object};
use crate::http::body::Problem;
use crate::http::pydantic::{Kind, Location};
use crate::wire::python;

const ROLES: &str = "'role' must be one of 'system', 'assistant', 'tool', 'function', 'developer', 'latest_reminder', 'root' (case-insensitive).";

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

const GENERIC: &str =
    "function-after[validate_thinking_parts_role(), ChatCompletionMessageGenericParam]";
const USER: &str = "function-after[validate_thinking_parts_role(), ChatCompletionMessageUserParam]";

/// Checks one message.
pub(super) fn check_message(at: &Location, message: &Value, problems: &mut Vec<Problem>) {
    let Value::Object(fields) = message else {
        problems.push(no_object(&at.key(GENERIC), message));
        problems.push(no_object(&at.key(USER), message));
        return;
    };
    let mut of_generic = Vec::new();
    check_generic(&at.key(GENERIC), message, fields, &mut of_generic);
    if of_generic.is_empty() {
        return;
    }
    let mut of_user = Vec::new();
    check_user(&at.key(USER), message, fields, &mut of_user);
    if of_user.is_empty() {
        return;
    }
    problems.append(&mut of_generic);
    problems.append(&mut of_user);
}

/// A message of anyone but the user.
fn check_generic(
    at: &Location,
    message: &Value,
    fields: &Map<String, Value>,
    problems: &mut Vec<Problem>,
) {
    let known = [
        "system",
        "assistant",
        "tool",
        "function",
        "developer",
        "latest_reminder",
        "root",
    ];
    let refused = match fields.get("role") {
        None => {
            problems.push(missing(at, "role", message));
            None
        }
        Some(Value::String(role)) if known.contains(&role.to_ascii_lowercase().as_str()) => None,
        Some(Value::String(_)) => Some(ROLES),
        Some(_) => Some("'role' must be a string"),
    };
    if let Some(rule) = refused {
        let role = fields.get("role").unwrap_or(&Value::Null);
        let quoted = python::repr_str(rule);
        let problem = at
            .key("role")
            .problem("value_error", &format!("Value error, {rule}"), role);
        problems.push(problem.with_context(&format!("'error': ValueError({quoted})")));
    }
    let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
    if let Some(content) = given("content") {
        check_content(&at.key("content"), content, problems);
    }
    if let Some(id) = given("tool_call_id") {
        Kind::Str.check(id, &at.key("tool_call_id"), problems);
    }
    if let Some(reasoning) = given("reasoning_content") {
        Kind::Str.check(reasoning, &at.key("reasoning_content"), problems);
    }
    match given("tool_calls") {
        None => {}
        Some(Value::Array(calls)) => {
            for (index, call) in calls.iter().enumerate() {
                check_call(&at.key("tool_calls").index(index), call, problems);
            }
        }
        Some(other) => {
            let at = at.key("tool_calls");
            problems.push(at.problem("list_type", "Input should be a valid list", other));
        }
    }
}

fn check_user(
    at: &Location,
    message: &Value,
    fields: &Map<String, Value>,
    problems: &mut Vec<Problem>,
) {
    match fields.get("role") {
        None => problems.push(missing(at, "role", message)),
        Some(role) => Kind::Literal(&["user"], "'user'").check(role, &at.key("role"), problems),
    }
    match fields.get("content") {
        None => problems.push(missing(at, "content", message)),
        Some(content) => check_content(&at.key("content"), content, problems),
    }
}

fn check_content(at: &Location, content: &Value, problems: &mut Vec<Problem>) {
    let parts = match content {
        Value::String(_) => return,
        Value::Array(parts) => parts,
        other => {
            Kind::Str.check(other, &at.key("str"), problems);
            return;
        }
    };
    for (index, part) in parts.iter().enumerate() {
        let at = at.index(index);
        let Some(fields) = part.as_object() else {
            problems.push(no_object(&at, part));
            continue;
        };
        match fields.get("type") {
            None => problems.push(missing(&at, "type", part)),
            Some(Value::String(kind)) if kind == "text" => match fields.get("text") {
                None => problems.push(missing(&at, "text", part)),
                Some(text) => Kind::Str.check(text, &at.key("text"), problems),
            },
            Some(kind)
                if kind
                    .as_str()
                    .is_some_and(|kind| OTHER_PARTS.contains(&kind)) => {}
            Some(kind) => Kind::Literal(&["text"], "'text'").check(kind, &at.key("type"), problems),
        }
    }
}

fn check_call(at: &Location, call: &Value, problems: &mut Vec<Problem>) {
    let Some(fields) = call.as_object() else {
        problems.push(no_object(at, call));
        return;
    };
    let Some(function) = fields.get("function") else {
        problems.push(missing(at, "function", call));
        return;
    };
    let at = at.key("function");
    let Some(function) = function.as_object() else {
        problems.push(no_object(&at, function));
        return;
    };
    let given = |name: &str| function.get(name).filter(|value| !value.is_null());
    if let Some(name) = given("name") {
        Kind::Str.check(name, &at.key("name"), problems);
    }
    if let Some(arguments) = given("arguments") {
        let kinds = Kind::Union(&[Kind::Str, Kind::Dict("str,any")]);
        kinds.check(arguments, &at.key("arguments"), problems);
    }
}
