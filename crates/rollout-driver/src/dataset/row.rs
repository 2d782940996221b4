//! From the bytes of a line to a prompt: which keys count, and which types they may have.
//!
//! Pure. The rules are those that a Miles user knows: `metadata` is an object or absent, `tools` is a list or its JSON text and is
//! also put into `metadata.tools`, where agents look for it; the label is taken as it is. What Miles lets through and later trips
//! over is refused here: a missing prompt, a label that the reward cannot compare, a string prompt for agents.

use serde_json::{Map, Value};

use super::error::RowProblem;
use crate::json_error::without_position;

/// Which keys of a row are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The prompt: a text or a list of chat messages.
    pub prompt: String,
    /// The ground truth; `None` reads none.
    pub label: Option<String>,
    /// Free-form metadata; `None` reads none.
    pub metadata: Option<String>,
    /// Tool specifications; `None` reads none.
    pub tools: Option<String>,
}

impl Default for Keys {
    fn default() -> Self {
        let key = |name: &str| Some(name.to_owned());
        Self {
            prompt: "prompt".to_owned(),
            label: key("label"),
            metadata: key("metadata"),
            tools: key("tools"),
        }
    }
}

/// What the job needs the label for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LabelRule {
    /// Nothing compares it: it may be missing, and is anything.
    #[default]
    Optional,
    /// It must be there, and is anything but null.
    Required,
    /// A grader compares it as text: it must be a text that is not blank, or a number.
    TextOrNumber,
}

/// What every row must fulfil.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// Which keys are read.
    pub keys: Keys,
    /// What the label may be.
    pub label: LabelRule,
    /// Agents get the prompt as messages, so a string is refused.
    pub require_messages: bool,
}

/// What a row says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Content {
    pub(super) prompt: Value,
    pub(super) label: Value,
    pub(super) metadata: Map<String, Value>,
    pub(super) tools: Option<Value>,
}

/// A problem, and the column where the parser stopped if it has one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) column: Option<usize>,
    pub(super) problem: RowProblem,
}

impl From<RowProblem> for Problem {
    fn from(problem: RowProblem) -> Self {
        Self {
            column: None,
            problem,
        }
    }
}

/// Reads one line.
pub(super) fn parse(line: &[u8], rules: &Rules) -> Result<Content, Problem> {
    let mut row = object(line)?;
    let prompt = take(&mut row, &rules.keys.prompt)?;
    check_prompt(&rules.keys.prompt, &prompt, rules.require_messages)?;
    let label = label(&mut row, rules)?;
    let mut metadata = metadata(&mut row, rules)?;
    let tools = tools(&mut row, rules)?;
    if let Some(tools) = &tools {
        metadata.insert("tools".to_owned(), tools.clone());
    }
    Ok(Content {
        prompt,
        label,
        metadata,
        tools,
    })
}

fn object(line: &[u8]) -> Result<Map<String, Value>, Problem> {
    let text = std::str::from_utf8(line).map_err(|bad| Problem {
        column: Some(bad.valid_up_to() + 1),
        problem: RowProblem::Encoding,
    })?;
    match serde_json::from_str(text) {
        Ok(Value::Object(row)) => Ok(row),
        Ok(other) => Err(RowProblem::NotAnObject {
            found: kind(&other),
        }
        .into()),
        Err(error) => Err(Problem {
            column: Some(error.column()),
            problem: RowProblem::Json(without_position(&error)),
        }),
    }
}

fn take(row: &mut Map<String, Value>, key: &str) -> Result<Value, RowProblem> {
    if let Some(value) = row.get_mut(key) {
        return Ok(value.take());
    }
    Err(RowProblem::MissingKey {
        key: key.to_owned(),
        present: names(row),
    })
}

fn names(row: &Map<String, Value>) -> String {
    const SHOWN: usize = 12;
    if row.is_empty() {
        return "no keys".to_owned();
    }
    let mut names: Vec<_> = row
        .keys()
        .take(SHOWN)
        .map(|key| format!("`{key}`"))
        .collect();
    if row.len() > SHOWN {
        names.push("...".to_owned());
    }
    names.join(", ")
}

fn check_prompt(key: &str, prompt: &Value, require_messages: bool) -> Result<(), RowProblem> {
    let wrong = |field: String, value: &Value, expected| {
        Err(RowProblem::WrongType {
            field,
            found: kind(value),
            expected,
        })
    };
    match prompt {
        Value::String(_) if require_messages => Err(RowProblem::TextPrompt {
            field: key.to_owned(),
        }),
        Value::String(text) if text.is_empty() => {
            wrong(key.to_owned(), prompt, "a text with at least one character")
        }
        Value::String(_) => Ok(()),
        Value::Array(messages) if messages.is_empty() => {
            wrong(key.to_owned(), prompt, "at least one message")
        }
        Value::Array(messages) => {
            for (position, message) in messages.iter().enumerate() {
                let field = |name: &str| format!("{key}[{position}]{name}");
                let Some(message) = message.as_object() else {
                    return wrong(
                        field(""),
                        message,
                        "a chat message: an object with `role` and `content`",
                    );
                };
                let role = message.get("role").unwrap_or(&Value::Null);
                if role.as_str().is_none_or(str::is_empty) {
                    return wrong(field(".role"), role, "a text such as \"user\"");
                }
                let content = message.get("content").unwrap_or(&Value::Null);
                let without_content = content.is_null() && message.contains_key("tool_calls");
                if !(content.is_string() || content.is_array() || without_content) {
                    return wrong(
                        field(".content"),
                        content,
                        "a text or a list of content parts",
                    );
                }
            }
            Ok(())
        }
        other => wrong(key.to_owned(), other, "a text or a list of chat messages"),
    }
}

fn label(row: &mut Map<String, Value>, rules: &Rules) -> Result<Value, RowProblem> {
    let Some(key) = &rules.keys.label else {
        return Ok(Value::Null);
    };
    if rules.label == LabelRule::Optional {
        return Ok(row.get_mut(key).map(Value::take).unwrap_or_default());
    }
    let label = take(row, key)?;
    let comparable = match &label {
        Value::String(text) => !text.trim().is_empty(),
        other => other.is_number(),
    };
    let expected = match rules.label {
        LabelRule::TextOrNumber if !comparable => "a text that is not blank, or a number",
        LabelRule::Required if label.is_null() => "a value",
        _ => return Ok(label),
    };
    Err(RowProblem::WrongType {
        field: key.clone(),
        found: kind(&label),
        expected,
    })
}

fn metadata(row: &mut Map<String, Value>, rules: &Rules) -> Result<Map<String, Value>, RowProblem> {
    let Some(key) = &rules.keys.metadata else {
        return Ok(Map::new());
    };
    match row.get_mut(key).map(Value::take) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(metadata)) => Ok(metadata),
        Some(other) => Err(RowProblem::WrongType {
            field: key.clone(),
            found: kind(&other),
            expected: "an object",
        }),
    }
}

fn tools(row: &mut Map<String, Value>, rules: &Rules) -> Result<Option<Value>, RowProblem> {
    let Some(key) = &rules.keys.tools else {
        return Ok(None);
    };
    let given = match row.get_mut(key).map(Value::take) {
        None | Some(Value::Null) => return Ok(None),
        Some(given) => given,
    };
    let expected = "a list of tool specifications, or the JSON text of one";
    let wrong = |field: String, found| RowProblem::WrongType {
        field,
        found,
        expected,
    };
    let tools = match given {
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|_| wrong(key.clone(), "a text that is not JSON"))?,
        other => other,
    };
    let Value::Array(list) = &tools else {
        return Err(wrong(key.clone(), kind(&tools)));
    };
    if let Some((position, other)) = list.iter().enumerate().find(|(_, tool)| !tool.is_object()) {
        return Err(wrong(format!("{key}[{position}]"), kind(other)));
    }
    Ok(Some(tools))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(text) if text.trim().is_empty() => "an empty text",
        Value::String(_) => "a text",
        Value::Array(list) if list.is_empty() => "an empty list",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
