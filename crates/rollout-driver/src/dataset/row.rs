//! From the bytes of a line to a prompt: which keys count, and which types they may have.
//!
//! Pure. The rules are those that a Miles user knows: `metadata` is an object or absent, `tools` is a list or its JSON text and is
//! also put into `metadata.tools`, where agents look for it; the label is taken as it is. What Miles lets through and later trips
//! over is refused here: a missing prompt, a label that the reward cannot compare, a string prompt for agents, a key that is there twice.

use serde_json::{Map, Value};

use super::error::RowProblem;
use super::place::Place;
use super::unique::{self, Fault};
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

/// What is wrong with a line, and the column where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadLine {
    pub(super) column: Option<usize>,
    pub(super) problem: RowProblem,
}

/// What is wrong with a value of a row.
#[derive(Debug)]
struct Misfit {
    place: Place,
    problem: RowProblem,
}

impl Misfit {
    /// A value of a type that cannot be used.
    fn wrong_type(place: Place, found: &'static str, expected: &'static str) -> Self {
        Self {
            problem: RowProblem::WrongType {
                field: place.to_string(),
                found,
                expected,
            },
            place,
        }
    }
}

/// Reads one line.
pub(super) fn parse(line: &[u8], rules: &Rules) -> Result<Content, BadLine> {
    let text = std::str::from_utf8(line).map_err(|bad| BadLine {
        column: Some(bad.valid_up_to() + 1),
        problem: RowProblem::Encoding,
    })?;
    let row = unique::parse(text).map_err(|fault| match fault {
        Fault::Json(error) => BadLine {
            column: Some(error.column()),
            problem: RowProblem::Json(without_position(&error)),
        },
        Fault::Twice { key, column } => BadLine {
            column: Some(column),
            problem: RowProblem::KeyTwice { key },
        },
    })?;
    content(row, rules).map_err(|Misfit { place, problem }| BadLine {
        column: place.column(text),
        problem,
    })
}

/// Where the prompt of a line starts.
pub(super) fn prompt_column(line: &[u8], rules: &Rules) -> Option<usize> {
    Place::of(&rules.keys.prompt).column(std::str::from_utf8(line).ok()?)
}

fn content(row: Value, rules: &Rules) -> Result<Content, Misfit> {
    let mut row = object(row)?;
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

fn object(row: Value) -> Result<Map<String, Value>, Misfit> {
    match row {
        Value::Object(row) => Ok(row),
        other => Err(Misfit {
            place: Place::row(),
            problem: RowProblem::NotAnObject {
                found: kind(&other),
            },
        }),
    }
}

fn take(row: &mut Map<String, Value>, key: &str) -> Result<Value, Misfit> {
    if let Some(value) = row.get_mut(key) {
        return Ok(value.take());
    }
    Err(Misfit {
        place: Place::row(),
        problem: RowProblem::MissingKey {
            key: key.to_owned(),
            present: names(row),
        },
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

fn check_prompt(key: &str, prompt: &Value, require_messages: bool) -> Result<(), Misfit> {
    let wrong = |expected| Err(Misfit::wrong_type(Place::of(key), kind(prompt), expected));
    match prompt {
        Value::String(_) if require_messages => Err(Misfit {
            place: Place::of(key),
            problem: RowProblem::TextPrompt {
                field: key.to_owned(),
            },
        }),
        Value::String(text) if text.is_empty() => wrong("a text with at least one character"),
        Value::String(_) => Ok(()),
        Value::Array(messages) if messages.is_empty() => wrong("at least one message"),
        Value::Array(messages) => {
            for (position, message) in messages.iter().enumerate() {
                check_message(message, &Place::of(key).item(position))?;
            }
            Ok(())
        }
        _ => wrong("a text or a list of chat messages"),
    }
}

fn check_message(message: &Value, place: &Place) -> Result<(), Misfit> {
    let Some(members) = message.as_object() else {
        let expected = "a chat message: an object with `role` and `content`";
        return Err(Misfit::wrong_type(place.clone(), kind(message), expected));
    };
    let wrong = |name: &str, expected| {
        let found = members.get(name).map_or("missing", kind);
        Err(Misfit::wrong_type(place.clone().key(name), found, expected))
    };
    let role = members.get("role").and_then(Value::as_str);
    if role.is_none_or(str::is_empty) {
        return wrong("role", "a text such as \"user\"");
    }
    let content = members.get("content").unwrap_or(&Value::Null);
    let without_content = content.is_null() && members.contains_key("tool_calls");
    if !(content.is_string() || content.is_array() || without_content) {
        return wrong("content", "a text or a list of content parts");
    }
    Ok(())
}

fn label(row: &mut Map<String, Value>, rules: &Rules) -> Result<Value, Misfit> {
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
    Err(Misfit::wrong_type(Place::of(key), kind(&label), expected))
}

fn metadata(row: &mut Map<String, Value>, rules: &Rules) -> Result<Map<String, Value>, Misfit> {
    let Some(key) = &rules.keys.metadata else {
        return Ok(Map::new());
    };
    match row.get_mut(key).map(Value::take) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(metadata)) => Ok(metadata),
        Some(other) => Err(Misfit::wrong_type(
            Place::of(key),
            kind(&other),
            "an object",
        )),
    }
}

fn tools(row: &mut Map<String, Value>, rules: &Rules) -> Result<Option<Value>, Misfit> {
    let Some(key) = &rules.keys.tools else {
        return Ok(None);
    };
    let given = match row.get_mut(key).map(Value::take) {
        None | Some(Value::Null) => return Ok(None),
        Some(given) => given,
    };
    let wrong = |place, found| {
        let expected = "a list of tool specifications, or the JSON text of one";
        Misfit::wrong_type(place, found, expected)
    };
    let tools = match given {
        Value::String(text) => unique::parse(&text).map_err(|fault| match fault {
            Fault::Json(_) => wrong(Place::of(key), "a text that is not JSON"),
            Fault::Twice { .. } => wrong(Place::of(key), "a JSON text with the same key twice"),
        })?,
        other => other,
    };
    let Value::Array(list) = &tools else {
        return Err(wrong(Place::of(key), kind(&tools)));
    };
    if let Some((position, other)) = list.iter().enumerate().find(|(_, tool)| !tool.is_object()) {
        return Err(wrong(Place::of(key).item(position), kind(other)));
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
