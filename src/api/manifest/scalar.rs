//! What a plain YAML scalar means.
//!
//! `kubectl` reads YAML 1.1 as Go's yaml.v2 does, so `no` is false and `010` is 8. A file must mean the same here as there, whatever newer
//! parsers make of it; where they differ, the author is told.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Number, Value};

/// A scalar and, where parsers disagree, what to write instead.
#[derive(Debug, PartialEq)]
pub(super) struct Resolved {
    pub(super) value: Value,
    pub(super) ambiguity: Option<String>,
}

/// Resolves an unquoted scalar. The error is for numbers that JSON does not have.
pub(super) fn resolve(text: &str) -> Result<Resolved, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(plain(Value::Null)),
        "true" | "True" | "TRUE" => return Ok(plain(Value::Bool(true))),
        "false" | "False" | "FALSE" => return Ok(plain(Value::Bool(false))),
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Ok(word(text, true)),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Ok(word(text, false)),
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => {
            return Err(format!(
                "{text} is no JSON number: quote it if it is a text"
            ));
        }
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) {
        return Ok(plain(Value::from(text)));
    }
    Ok(number(text).unwrap_or_else(|| plain(Value::from(text))))
}

fn plain(value: Value) -> Resolved {
    Resolved {
        value,
        ambiguity: None,
    }
}

fn word(text: &str, value: bool) -> Resolved {
    Resolved {
        value: Value::Bool(value),
        ambiguity: Some(format!(
            "{text} without quotes is {value} to kubectl and a text to newer YAML parsers: write {value}, or \"{text}\""
        )),
    }
}

/// A number as yaml.v2 reads it: underscores are skipped, `0x`, `0b`, `0o` and a leading 0 name the base.
fn number(text: &str) -> Option<Resolved> {
    let digits = text.replace('_', "");
    let value = integer(&digits).or_else(|| float(&digits))?;
    let unsigned = digits.trim_start_matches(['+', '-']);
    let leading_zero =
        unsigned.len() > 1 && unsigned.starts_with('0') && unsigned.as_bytes()[1].is_ascii_digit();
    let other_base = ["0b", "0B", "0o", "0O"]
        .iter()
        .any(|prefix| unsigned.starts_with(prefix));
    let ambiguity = (digits != text || leading_zero || other_base).then(|| {
        format!(
            "{text} without quotes is the number {value} to kubectl, and other parsers read it otherwise: write {value}, or \"{text}\""
        )
    });
    Some(Resolved { value, ambiguity })
}

fn integer(text: &str) -> Option<Value> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
        [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        let value = 0i64.checked_sub_unsigned(magnitude)?;
        Some(Value::from(value))
    } else {
        Some(Value::from(magnitude))
    }
}

static FLOAT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$").ok());

fn float(text: &str) -> Option<Value> {
    if !FLOAT.as_ref()?.is_match(text) {
        return None;
    }
    whole_or_float(text.parse().ok()?)
}

/// JSON has one kind of number: 32.0 and 32 are the same.
pub(super) fn whole_or_float(float: f64) -> Option<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if float.fract() == 0.0 && float.abs() <= EXACT {
        let whole: i64 = format!("{float:.0}").parse().ok()?;
        return Some(Value::from(whole));
    }
    Number::from_f64(float).map(Value::Number)
}
