//! Tools as SGLang 0.5.23 hands them to a chat template.

use serde_json::{Map, Value, json};

use crate::TokenizerError;

/// Tools of a request in the form in which SGLang 0.5.23 renders them. `None` for no tools: absent, null, or an empty array.
///
/// Of a tool remain `type` (`function` by default), `function` and `defer_loading` (null by default), in this order. Of its function remain
/// `description`, `name`, `parameters`, `strict` and `defer_loading`: those that the client sent, in its order; then the first three
/// as null if it left them out. Other versions render other defaults, so a prompt is tied to the engine's version.
///
/// # Errors
/// A tool is no object with a `function` that has a `name`, or a field is of another type than it should be.
pub fn sglang_tools(tools: Option<&Value>) -> Result<Option<Value>, TokenizerError> {
    let list = match tools {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(list)) if list.is_empty() => return Ok(None),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(broken("tools".into(), "must be an array")),
    };
    let tools = list
        .iter()
        .enumerate()
        .map(|(index, tool)| shown(tool, &format!("tools[{index}]")))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Some(Value::Array(tools)))
}

fn broken(place: String, problem: &str) -> TokenizerError {
    TokenizerError::Messages {
        place,
        problem: problem.into(),
    }
}

fn shown(tool: &Value, place: &str) -> Result<Value, TokenizerError> {
    let tool = tool
        .as_object()
        .ok_or_else(|| broken(place.into(), "must be an object"))?;
    let sent = tool
        .get("function")
        .and_then(Value::as_object)
        .ok_or_else(|| broken(format!("{place}.function"), "must be an object"))?;
    check(sent, &format!("{place}.function"))?;
    let kind = tool
        .get("type")
        .cloned()
        .unwrap_or_else(|| "function".into());
    let defer_loading = tool.get("defer_loading").cloned().unwrap_or_default();
    let mut function = function(sent);
    if !defer_loading.is_null() && !function.contains_key("defer_loading") {
        function.insert("defer_loading".into(), defer_loading.clone());
    }
    Ok(json!({"type": kind, "function": function, "defer_loading": defer_loading}))
}

fn check(function: &Map<String, Value>, place: &str) -> Result<(), TokenizerError> {
    if !function.get("name").is_some_and(Value::is_string) {
        return Err(broken(format!("{place}.name"), "must be a string"));
    }
    if function
        .get("description")
        .is_some_and(|value| !value.is_string() && !value.is_null())
    {
        return Err(broken(
            format!("{place}.description"),
            "must be a string or null",
        ));
    }
    Ok(())
}

fn function(sent: &Map<String, Value>) -> Map<String, Value> {
    const FIELDS: [&str; 3] = ["description", "name", "parameters"];
    const FIELDS_WITHOUT_NULL: [&str; 2] = ["strict", "defer_loading"];
    let mut shown: Map<String, Value> = sent
        .iter()
        .filter(|(key, value)| {
            FIELDS.contains(&key.as_str())
                || (FIELDS_WITHOUT_NULL.contains(&key.as_str()) && !value.is_null())
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for field in FIELDS {
        shown.entry(field).or_insert(Value::Null);
    }
    shown
}
