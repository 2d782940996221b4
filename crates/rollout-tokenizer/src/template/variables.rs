//! JSON values as values of the template engine, and back to text as Python writes it.

use std::fmt::Write as _;
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Error, State, Value};

use crate::json::{Json, Number, python_float};

/// An integer beyond 128 bits: it can be printed.
#[derive(Debug)]
pub(super) struct LongInteger(Arc<str>);

impl Object for LongInteger {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A JSON value for a template.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(Number::Int(whole)) => Value::from(*whole),
        Json::Number(Number::Long(digits)) => Value::from_object(LongInteger(Arc::clone(digits))),
        Json::Number(Number::Float(float)) => Value::from(*float),
        Json::String(text) => Value::from(Arc::clone(text)),
        Json::Array(items) => items.iter().map(value).collect(),
        Json::Object(fields) => Value::from_pairs(
            fields
                .iter()
                .map(|(key, field)| (Arc::clone(key), value(field))),
        ),
    }
}

/// Whether the value is an integer of any size.
pub(super) fn is_integer(value: &Value) -> bool {
    value.is_integer() || value.downcast_object_ref::<LongInteger>().is_some()
}

/// `str(value)`, appended.
pub(super) fn write_str(state: &State, out: &mut String, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String => out.push_str(value.as_str().unwrap_or_default()),
        ValueKind::Undefined => {}
        _ => write_repr(state, out, value)?,
    }
    Ok(())
}

/// `repr(value)`, appended.
fn write_repr(state: &State, out: &mut String, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&python_float(f64::try_from(value.clone())?));
        }
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            state.consume_fuel((text.len() / 64) as u64)?;
            write_string(out, text);
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.checked().enumerate() {
                let key = key?;
                state.consume_fuel(1)?;
                out.push_str(if index > 0 { ", " } else { "" });
                write_repr(state, out, &key)?;
                out.push_str(": ");
                write_repr(state, out, &value.get_item(&key)?)?;
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let brackets = if value.is_tuple() {
                ['(', ')']
            } else {
                ['[', ']']
            };
            out.push(brackets[0]);
            let mut count = 0;
            for item in value.try_iter()?.checked() {
                // A list may be a lazy sum of sums, longer than any memory.
                state.consume_fuel(1)?;
                out.push_str(if count > 0 { ", " } else { "" });
                write_repr(state, out, &item?)?;
                count += 1;
            }
            if value.is_tuple() && count == 1 {
                out.push(',');
            }
            out.push(brackets[1]);
        }
        _ => {
            // Writing to a string cannot fail.
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

/// `repr` of a string: single quotes unless it has some and no double ones; what does not print is escaped.
fn write_string(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for character in text.chars() {
        let code = u32::from(character);
        // Writing to a string cannot fail.
        let _ = match character {
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            c if c == quote => write!(out, "\\{c}"),
            c if is_printable(c) => out.write_char(c),
            _ if code < 0x100 => write!(out, "\\x{code:02x}"),
            _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
    }
    out.push(quote);
}

/// `str.isprintable` of one character, for what Rust's standard library knows: its escapes leave out the same characters, and
/// besides combining ones.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return (' '..='~').contains(&character);
    }
    if character == '\u{ad}' || (character.is_whitespace() && character != ' ') {
        return false;
    }
    let mut escaped = character.escape_debug();
    escaped.len() == 1 || is_combining(character) || escaped.next() != Some('\\')
}

fn is_combining(character: char) -> bool {
    // `escape_debug` of a character inside of a text does not escape combining ones: the first character of a string only.
    let mut text = String::from("a");
    text.push(character);
    text.escape_debug().count() == 2
}
