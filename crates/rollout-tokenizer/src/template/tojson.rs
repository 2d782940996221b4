//! The `tojson` of `transformers`: Python's `json.dumps` with `ensure_ascii`, `indent`, `separators` and `sort_keys`.
//!
//! Nothing is escaped for HTML, keys keep their order, numbers look as in Python.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::filters::is_generator;
use super::variables;
use crate::json::python_float;

/// Deepest nesting that is written: what a request may nest, and what templates put around it.
const MAX_DEPTH: usize = 200;

struct Style {
    ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// `value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`, by keyword or by position.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    positional: Rest<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    // The keyword arguments arrive as the last positional one when there is a variadic parameter.
    let mut positional = positional.0;
    let kwargs = match positional.pop_if(|last| last.is_kwargs()) {
        Some(last) => Kwargs::try_from(last)?,
        None => kwargs,
    };
    let mut positional = positional.into_iter();
    let mut argument = |name: &str| -> Result<Value, Error> {
        let by_position = positional.next();
        let by_keyword: Option<Value> = kwargs.get(name)?;
        Ok(by_position.or(by_keyword).unwrap_or_default())
    };
    let ascii = argument("ensure_ascii")?.is_true();
    let indent = indentation(&argument("indent")?)?;
    let separators = argument("separators")?;
    let sort_keys = argument("sort_keys")?.is_true();
    kwargs.assert_all_used()?;
    if positional.next().is_some() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let (item_separator, key_separator) = if separators.is_none() || separators.is_undefined() {
        let item = if indent.is_some() { "," } else { ", " };
        (item.to_owned(), ": ".to_owned())
    } else {
        let part = |index| {
            let part = separators.get_item_by_index(index)?;
            let text = part
                .as_str()
                .ok_or_else(|| invalid("separators must be two strings"))?;
            Ok::<_, Error>(text.to_owned())
        };
        (part(0)?, part(1)?)
    };
    let style = Style {
        ascii,
        indent,
        item_separator,
        key_separator,
        sort_keys,
    };
    let mut out = String::new();
    write_value(state, &mut out, &style, value, 0)?;
    Ok(out)
}

fn invalid(detail: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}

fn indentation(indent: &Value) -> Result<Option<String>, Error> {
    if indent.is_none() || indent.is_undefined() {
        return Ok(None);
    }
    if let Some(text) = indent.as_str() {
        return Ok(Some(text.to_owned()));
    }
    let width = match indent.kind() {
        ValueKind::Bool => i64::from(indent.is_true()),
        _ => indent
            .as_i64()
            .ok_or_else(|| invalid("indent must be a number or a string"))?,
    };
    let width = usize::try_from(width).unwrap_or(0);
    if width > 64 {
        return Err(invalid("indent must be at most 64"));
    }
    Ok(Some(" ".repeat(width)))
}

fn write_value(
    state: &State,
    out: &mut String,
    style: &Style,
    value: &Value,
    depth: usize,
) -> Result<(), Error> {
    // A list may be a lazy sum of sums, longer than any memory.
    state.consume_fuel(1)?;
    if depth > MAX_DEPTH {
        return Err(invalid("values are nested too deep for JSON"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)?),
        ValueKind::String => write_string(out, style, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable if !is_generator(value) => {
            let mut items = Vec::new();
            for item in value.try_iter()?.checked() {
                state.consume_fuel(1)?;
                items.push(item?);
            }
            write_container(out, style, depth, ['[', ']'], &items, |out, item| {
                write_value(state, out, style, item, depth + 1)
            })?;
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()?.checked() {
                let key = key?;
                entries.push((key_text(&key)?, value.get_item(&key)?));
            }
            if style.sort_keys {
                entries.sort_by(|(left, _), (right, _)| left.cmp(right));
            }
            write_container(
                out,
                style,
                depth,
                ['{', '}'],
                &entries,
                |out, (key, value)| {
                    write_string(out, style, key);
                    out.push_str(&style.key_separator);
                    write_value(state, out, style, value, depth + 1)
                },
            )?;
        }
        ValueKind::Plain if variables::is_integer(value) => out.push_str(&number(value)?),
        kind => {
            return Err(Error::new(
                ErrorKind::BadSerialization,
                format!("a value of kind {kind} is not JSON serializable"),
            ));
        }
    }
    Ok(())
}

fn write_container<T>(
    out: &mut String,
    style: &Style,
    depth: usize,
    brackets: [char; 2],
    items: &[T],
    mut write_item: impl FnMut(&mut String, &T) -> Result<(), Error>,
) -> Result<(), Error> {
    let break_line = |out: &mut String, depth: usize| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    out.push(brackets[0]);
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(&style.item_separator);
        }
        break_line(out, depth + 1);
        write_item(out, item)?;
    }
    if !items.is_empty() {
        break_line(out, depth);
    }
    out.push(brackets[1]);
    Ok(())
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.into()),
        ValueKind::Number => number(key),
        _ => Err(invalid("keys must be strings, numbers, booleans or none")),
    }
}

fn number(value: &Value) -> Result<String, Error> {
    if variables::is_integer(value) {
        return Ok(value.to_string());
    }
    let float = f64::try_from(value.clone())?;
    Ok(if float.is_finite() {
        python_float(float)
    } else if float.is_nan() {
        "NaN".into()
    } else {
        if float > 0.0 { "Infinity" } else { "-Infinity" }.into()
    })
}

fn write_string(out: &mut String, style: &Style, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || (style.ascii && !matches!(c, ' '..='~')) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
