//! JSON as a template sees it: keys in order, integers of any size, floats apart from integers.
//!
//! `serde_json::Value` rounds integers beyond 64 bits to floats, and refuses floats beyond their range, which Python reads as infinity.
//! Arguments of tool calls hold both, and each digit is a token. The parser takes what RFC 8259 allows, up to 128 levels of nesting; of
//! a key that comes twice the last value counts, at the place of the first, as in Python.

mod number;
mod parse;

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;

pub use number::Number;
pub(crate) use number::python_float;
pub use parse::ParseError;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(Arc<str>),
    /// An array.
    Array(Vec<Self>),
    /// An object.
    Object(IndexMap<Arc<str>, Self>),
}

impl Json {
    /// Reads JSON text.
    ///
    /// # Errors
    /// The text is no JSON, or is nested deeper than 128 levels.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text)
    }

    /// An object of these fields.
    pub fn object<const N: usize>(fields: [(&str, Self); N]) -> Self {
        Self::Object(
            fields
                .into_iter()
                .map(|(key, value)| (key.into(), value))
                .collect(),
        )
    }

    /// The field of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_object()?.get(key)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The items of an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The fields of an object.
    pub fn as_object(&self) -> Option<&IndexMap<Arc<str>, Self>> {
        match self {
            Self::Object(fields) => Some(fields),
            _ => None,
        }
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// About how many bytes the value has as text.
    pub(crate) fn weight(&self) -> u64 {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) => 8,
            Self::String(text) => 8 + text.len() as u64,
            Self::Array(items) => items.iter().map(Self::weight).sum::<u64>() + 8,
            Self::Object(fields) => fields
                .iter()
                .map(|(key, value)| 8 + key.len() as u64 + value.weight())
                .sum::<u64>(),
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<bool> for Json {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(flag) => Self::Bool(*flag),
            serde_json::Value::Number(number) => Self::Number(Number::from(number)),
            serde_json::Value::String(text) => Self::String(text.as_str().into()),
            serde_json::Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            serde_json::Value::Object(fields) => Self::Object(
                fields
                    .iter()
                    .map(|(key, value)| (key.as_str().into(), Self::from(value)))
                    .collect(),
            ),
        }
    }
}

/// As JSON text on one line.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(flag) => flag.fmt(f),
            Self::Number(Number::Float(float)) if float.is_infinite() => {
                f.write_str(if *float > 0.0 { "1e999" } else { "-1e999" })
            }
            Self::Number(number) => number.fmt(f),
            Self::String(text) => quoted(f, text),
            Self::Array(items) => {
                f.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    f.write_str(if index > 0 { ", " } else { "" })?;
                    item.fmt(f)?;
                }
                f.write_str("]")
            }
            Self::Object(fields) => {
                f.write_str("{")?;
                for (index, (key, value)) in fields.iter().enumerate() {
                    f.write_str(if index > 0 { ", " } else { "" })?;
                    quoted(f, key)?;
                    f.write_str(": ")?;
                    value.fmt(f)?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str(&serde_json::to_string(text).map_err(|_| fmt::Error)?)
}
