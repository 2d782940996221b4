//! Numbers as Python has them.

use std::fmt;
use std::sync::Arc;

/// A JSON number: an integer if it is written without point and exponent, else a float.
#[derive(Debug, Clone, PartialEq)]
pub enum Number {
    /// An integer of up to 128 bits.
    Int(i128),
    /// A longer integer, by its digits.
    Long(Arc<str>),
    /// A float.
    Float(f64),
}

impl Number {
    /// Reads a number that JSON's grammar allows.
    pub(super) fn of_token(token: &str) -> Option<Self> {
        if token.contains(['.', 'e', 'E']) {
            return token.parse().ok().map(Self::Float);
        }
        let whole = token.strip_prefix('-').unwrap_or(token);
        if whole.is_empty() || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(
            token
                .parse()
                .map_or_else(|_| Self::Long(token.into()), Self::Int),
        )
    }
}

impl From<&serde_json::Number> for Number {
    fn from(number: &serde_json::Number) -> Self {
        match number.as_i128() {
            Some(whole) => Self::Int(whole),
            None => Self::Float(number.as_f64().unwrap_or_default()),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(whole) => whole.fmt(f),
            Self::Long(digits) => f.write_str(digits),
            Self::Float(float) => f.write_str(&python_float(*float)),
        }
    }
}

/// `float.__repr__`: the shortest digits that read back the same, with an exponent from 1e16 up and below 1e-4.
pub(crate) fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if number != 0.0 && !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => {
            let plain = format!("{number}");
            if plain.contains('.') {
                plain
            } else {
                format!("{plain}.0")
            }
        }
    }
}
