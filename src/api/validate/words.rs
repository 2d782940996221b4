//! What is said about a value that does not fit its schema: what it should be, in the words of a person who writes manifests.

use std::borrow::Cow;

use serde_json::Value;

use super::instead::instead;
use super::suggest;

/// Patterns of the definitions, and what to write so that a text matches. A test finds those that are missing here.
const PATTERNS: &[(&str, &str)] = &[
    (
        r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$",
        "write module.function, as in an import: letters, digits and _, with at least one dot",
    ),
    (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        "write a quantity such as 16Gi, 500m or 2",
    ),
    (
        "^https?://",
        "write a URL that begins with http:// or https://",
    ),
    (
        "^https?://[^/?#]+/?$",
        "write http://host:port, without a path",
    ),
    ("^/", "write a path that begins with /"),
    ("^[a-z0-9_]+$", "write lower-case letters, digits and _"),
    (
        "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        "write letters, digits, '.', '_' and '-', with a letter or digit at both ends",
    ),
    (
        "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$",
        "write letters, digits, '.', '_' and '-', with a letter or digit at both ends",
    ),
];

/// What a text must look like to match a pattern.
pub(super) fn pattern(pattern: &str) -> Option<&'static str> {
    PATTERNS
        .iter()
        .find(|(known, _)| *known == pattern)
        .map(|(_, words)| *words)
}

/// A text that does not match its pattern.
pub(super) fn no_match(text: &str, wanted: &str) -> String {
    match pattern(wanted) {
        Some(words) => match text
            .strip_suffix(['B', 'b'])
            .filter(|_| words.contains("quantity"))
        {
            Some(unit) if !unit.is_empty() => format!(
                "\"{text}\": write {unit}, or {}i",
                unit.trim_end_matches('i')
            ),
            _ => format!("\"{text}\": {words}"),
        },
        None => format!("\"{text}\" does not match {wanted}"),
    }
}

/// The choices of an enum.
pub(super) fn choices(schema: &Value) -> Vec<&str> {
    texts(&schema["enum"])
}

/// A text that is none of the choices.
pub(super) fn no_choice(text: &str, choices: &[&str]) -> String {
    match suggest::closest(text, choices.iter().copied()) {
        Some(meant) => format!(
            "\"{text}\" is not one of {}; did you mean {meant}?",
            choices.join(", ")
        ),
        None => format!("\"{text}\" is not one of {}", choices.join(", ")),
    }
}

/// What a field that is required and missing should be, and what for.
pub(super) fn wanted(schema: &Value) -> String {
    let kind = kind(schema);
    if let Some(choice) = choice_of_members(schema) {
        return format!(", {kind}: {choice}");
    }
    let members = match schema["type"].as_str() {
        Some("object") => members(schema),
        _ => String::new(),
    };
    let purpose = schema["description"]
        .as_str()
        .map_or(String::new(), |description| {
            let sentence = description.split(". ").next().unwrap_or_default();
            format!(": {}", sentence.trim_end_matches('.'))
        });
    format!(", {kind}{members}{purpose}")
}

fn kind(schema: &Value) -> Cow<'static, str> {
    let choices = choices(schema);
    if !choices.is_empty() {
        return format!("one of {}", choices.join(", ")).into();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return "a text or a whole number".into();
    }
    match schema["type"].as_str() {
        Some("object") => "an object",
        Some("array") => "a list",
        Some("integer") => "a whole number",
        Some("number") => "a number",
        Some("boolean") => "true or false",
        _ => "a text",
    }
    .into()
}

/// The members that an object must have, or the few that it may have.
fn members(schema: &Value) -> String {
    let required = texts(&schema["required"]);
    if !required.is_empty() {
        return format!(" with {}", required.join(" and "));
    }
    let names: Vec<&str> = names(schema).collect();
    match names.len() {
        1..=6 => format!(" of {}", names.join(", ")),
        _ => String::new(),
    }
}

/// What is said about an object of which exactly one member must be set.
fn choice_of_members(schema: &Value) -> Option<&str> {
    let first = schema["x-kubernetes-validations"][0]["message"].as_str();
    first.filter(|message| message.starts_with("set exactly one"))
}

/// A field that is there and has no value.
pub(super) fn null(schema: &Value, at: &str) -> String {
    let name = last(at);
    if schema["type"] != "object" {
        return format!("is empty: write {}, or remove it", kind(schema));
    }
    let required = texts(&schema["required"]);
    if !required.is_empty() {
        return format!("is empty: it needs {}", required.join(" and "));
    }
    match choice_of_members(schema) {
        Some(message) => format!("is empty: {message}"),
        None => format!("is empty: write {name}: {{}}, or remove it"),
    }
}

/// A value of another type than its schema's.
pub(super) fn wrong_type(schema: &Value, value: &Value, at: &str) -> String {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("the text \"{text}\""),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    let hint = instead(schema, value, last(at)).map_or(String::new(), |hint| format!(": {hint}"));
    format!("must be {}, is {found}{hint}", kind(schema))
}

/// Members of an object, with their schemas.
pub(super) fn members_of(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

/// Names of the members of an object.
pub(super) fn names(schema: &Value) -> impl Iterator<Item = &str> {
    members_of(schema).map(|(name, _)| name.as_str())
}

/// The texts of a list.
pub(super) fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// The name of the field at a path.
fn last(at: &str) -> &str {
    let field = at.rsplit('.').next().unwrap_or(at);
    field.split('[').next().unwrap_or(field)
}
