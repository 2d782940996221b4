//! Writes generated objects as YAML that a person reads: what fits on a line is on a line.
//!
//! Block style for what is large, flow style (`{type: string, maxLength: 253}`) for small objects of scalars, JSON strings where a plain
//! scalar could be misread. Any YAML parser reads back the same value; a test does.

use std::fmt::Write;

use serde_json::{Map, Value};

/// Longest flow object.
const LINE: usize = 150;

/// The YAML of a value, with a newline at its end.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (name, inner) in object {
                pad(indent, text);
                text.push_str(&scalar_text(name));
                text.push(':');
                member(inner, indent, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                pad(indent, text);
                text.push('-');
                item_of(item, indent, text);
            }
        }
        _ => {
            text.push_str(&flow(value));
            text.push('\n');
        }
    }
}

fn member(value: &Value, indent: usize, text: &mut String) {
    if fits(value) {
        text.push(' ');
        text.push_str(&flow(value));
        text.push('\n');
        return;
    }
    text.push('\n');
    // A sequence needs no indent of its own below its key.
    let inner = if value.is_array() { indent } else { indent + 2 };
    block(value, inner, text);
}

fn item_of(value: &Value, indent: usize, text: &mut String) {
    if fits(value) {
        text.push(' ');
        text.push_str(&flow(value));
        text.push('\n');
        return;
    }
    // The first member shares the line of the dash.
    let mut inner = String::new();
    block(value, indent + 2, &mut inner);
    text.push(' ');
    text.push_str(inner.trim_start());
}

fn fits(value: &Value) -> bool {
    match value {
        Value::Object(object) => {
            object.values().all(|inner| match inner {
                Value::Object(inner) => inner.is_empty(),
                Value::Array(items) => items.iter().all(is_scalar),
                _ => true,
            }) && flow(value).len() <= LINE
        }
        Value::Array(items) => items.iter().all(is_scalar) && flow(value).len() <= LINE,
        _ => true,
    }
}

fn is_scalar(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

fn flow(value: &Value) -> String {
    match value {
        Value::Object(object) => flow_object(object),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => scalar_text(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn flow_object(object: &Map<String, Value>) -> String {
    let mut text = String::from("{");
    for (index, (name, value)) in object.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{}: {}", scalar_text(name), flow(value));
    }
    text.push('}');
    text
}

/// A plain scalar when every YAML version reads it as this text, else a JSON string.
fn scalar_text(text: &str) -> String {
    const WORDS: [&str; 12] = [
        "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "self",
    ];
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '.' || c == ')')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || " ._-/()$+=".contains(c))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

fn pad(indent: usize, text: &mut String) {
    text.extend(std::iter::repeat_n(' ', indent));
}
