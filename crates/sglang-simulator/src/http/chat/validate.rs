//! Type checks of a chat request, in the words of pydantic.

use serde_json::{Map, Value};

use crate::http::body::{Place, Problem};
use crate::http::reply::ApiError;
use crate::wire::python;

const ROLES: &str = "'role' must be one of 'system', 'assistant', 'tool', 'function', 'developer', 'latest_reminder', 'root' (case-insensitive).";

/// Checks types; values are checked later.
pub(super) fn check(place: &Place, fields: &Map<String, Value>) -> Result<(), ApiError> {
    let mut problems = Vec::new();
    match fields.get("messages") {
        None => problems.push(Problem::new(
            "missing",
            "('body', 'messages')",
            "Field required",
            &shown(fields),
        )),
        Some(Value::Array(messages)) => {
            for (index, message) in messages.iter().enumerate() {
                check_message(index, message, &mut problems);
            }
        }
        Some(other) => {
            let message = "Input should be a valid list";
            problems.push(Problem::new(
                "list_type",
                "('body', 'messages')",
                message,
                &python::repr(other),
            ));
        }
    }
    for (index, tool) in fields
        .get("tools")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        if tool.get("function").is_none() {
            let location = format!("('body', 'tools', {index}, 'function')");
            problems.push(Problem::new(
                "missing",
                &location,
                "Field required",
                &python::repr(tool),
            ));
        }
    }
    for name in [
        "max_tokens",
        "max_completion_tokens",
        "n",
        "seed",
        "top_logprobs",
        "top_k",
        "min_tokens",
    ] {
        check_integer(name, fields.get(name), &mut problems);
    }
    for name in [
        "temperature",
        "top_p",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
    ] {
        check_number(name, fields.get(name), &mut problems);
    }
    for name in [
        "stream",
        "logprobs",
        "return_prompt_token_ids",
        "return_token_ids",
        "return_meta_info",
        "ignore_eos",
    ] {
        check_boolean(name, fields.get(name), &mut problems);
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(place.invalid(&problems))
    }
}

/// The request as the server sees it: it adds a tool choice before it validates.
fn shown(fields: &Map<String, Value>) -> String {
    let mut shown = fields.clone();
    if !shown.contains_key("tool_choice") {
        let choice = if shown.get("tools").is_some_and(|tools| !tools.is_null()) {
            "auto"
        } else {
            "none"
        };
        shown.insert("tool_choice".into(), choice.into());
    }
    python::repr(&Value::Object(shown))
}

fn check_message(index: usize, message: &Value, problems: &mut Vec<Problem>) {
    let generic =
        "function-after[validate_thinking_parts_role(), ChatCompletionMessageGenericParam]";
    let user = "function-after[validate_thinking_parts_role(), ChatCompletionMessageUserParam]";
    let at = |of: &str, field: &str| format!("('body', 'messages', {index}, '{of}', '{field}')");
    let Value::Object(fields) = message else {
        let location = format!("('body', 'messages', {index})");
        let text = "Input should be a valid dictionary or object to extract fields from";
        problems.push(Problem::new(
            "model_attributes_type",
            &location,
            text,
            &python::repr(message),
        ));
        return;
    };
    let Some(role) = fields.get("role").and_then(Value::as_str) else {
        for of in [generic, user] {
            problems.push(Problem::new(
                "missing",
                &at(of, "role"),
                "Field required",
                &python::repr(message),
            ));
        }
        return;
    };
    let known = [
        "system",
        "assistant",
        "tool",
        "function",
        "developer",
        "latest_reminder",
        "root",
    ];
    if known.contains(&role.to_ascii_lowercase().as_str())
        || (role == "user" && fields.contains_key("content"))
    {
        return;
    }
    let quoted = python::repr_str(ROLES);
    problems.push(
        Problem::new(
            "value_error",
            &at(generic, "role"),
            &format!("Value error, {ROLES}"),
            &python::repr_str(role),
        )
        .with_context(&format!("'error': ValueError({quoted})")),
    );
    if role == "user" {
        problems.push(Problem::new(
            "missing",
            &at(user, "content"),
            "Field required",
            &python::repr(message),
        ));
    } else {
        let problem = Problem::new(
            "literal_error",
            &at(user, "role"),
            "Input should be 'user'",
            &python::repr_str(role),
        );
        problems.push(problem.with_context("'expected': \"'user'\""));
    }
}

fn check_integer(name: &str, value: Option<&Value>, problems: &mut Vec<Problem>) {
    let location = format!("('body', '{name}')");
    match value {
        None | Some(Value::Null) => {}
        Some(Value::Number(number)) if number.is_i64() || number.is_u64() => {}
        Some(Value::Number(number))
            if number.as_f64().is_some_and(|value| value.fract() == 0.0) => {}
        Some(Value::String(text)) if text.trim().parse::<i64>().is_ok() => {}
        Some(value @ Value::String(_)) => {
            let text = "Input should be a valid integer, unable to parse string as an integer";
            problems.push(Problem::new(
                "int_parsing",
                &location,
                text,
                &python::repr(value),
            ));
        }
        Some(value @ Value::Number(_)) => {
            let text = "Input should be a valid integer, got a number with a fractional part";
            problems.push(Problem::new(
                "int_from_float",
                &location,
                text,
                &python::repr(value),
            ));
        }
        Some(value) => {
            problems.push(Problem::new(
                "int_type",
                &location,
                "Input should be a valid integer",
                &python::repr(value),
            ));
        }
    }
}

fn check_number(name: &str, value: Option<&Value>, problems: &mut Vec<Problem>) {
    let location = format!("('body', '{name}')");
    match value {
        None | Some(Value::Null | Value::Number(_)) => {}
        Some(Value::String(text)) if text.trim().parse::<f64>().is_ok() => {}
        Some(value @ Value::String(_)) => {
            let text = "Input should be a valid number, unable to parse string as a number";
            problems.push(Problem::new(
                "float_parsing",
                &location,
                text,
                &python::repr(value),
            ));
        }
        Some(value) => {
            problems.push(Problem::new(
                "float_type",
                &location,
                "Input should be a valid number",
                &python::repr(value),
            ));
        }
    }
}

fn check_boolean(name: &str, value: Option<&Value>, problems: &mut Vec<Problem>) {
    let location = format!("('body', '{name}')");
    match value {
        None | Some(Value::Null | Value::Bool(_)) => {}
        Some(Value::String(text))
            if ["true", "false", "1", "0", "yes", "no", "on", "off"].contains(&text.as_str()) => {}
        Some(Value::Number(number)) if number.as_u64().is_some_and(|value| value < 2) => {}
        Some(value @ (Value::String(_) | Value::Number(_))) => {
            let text = "Input should be a valid boolean, unable to interpret input";
            problems.push(Problem::new(
                "bool_parsing",
                &location,
                text,
                &python::repr(value),
            ));
        }
        Some(value) => {
            problems.push(Problem::new(
                "bool_type",
                &location,
                "Input should be a valid boolean",
                &python::repr(value),
            ));
        }
    }
}
