//! The parts of a message that are compared.

use std::borrow::Cow;

use super::arguments;
use super::equality::{Field, Rule, elements, equal, fields, kind, same_keys};
use super::text::code_points;
use crate::json::{Cursor, JsonError, Kind};

/// Between the text parts of a content, as SGLang joins them.
const PART_SEPARATOR: &[u8] = b" ";

/// A message. A part that is missing, `null`, `""` or `[]` is `None`.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    role: Option<&'a str>,
    content: Option<&'a str>,
    reasoning: Option<&'a str>,
    tool_calls: Option<&'a str>,
}

impl<'a> Message<'a> {
    /// Reads an object; everything else of it is stepped over.
    pub(super) fn read(raw: &'a str) -> Result<Self, JsonError> {
        let mut message = Self::default();
        let mut cursor = Cursor::new(raw);
        cursor.object::<JsonError>(|key, value| {
            let span = value.span()?;
            let part = match key.name.as_ref() {
                "role" => &mut message.role,
                "content" => &mut message.content,
                "reasoning_content" => &mut message.reasoning,
                "tool_calls" => &mut message.tool_calls,
                _ => return Ok(()),
            };
            // Of a repeated key the last value counts, also when it is nothing.
            *part = Some(&raw[span]).filter(|raw| !is_nothing(raw));
            Ok(())
        })?;
        cursor.finish()?;
        Ok(message)
    }

    pub(super) fn role_text(&self) -> Option<String> {
        let text = Cursor::new(self.role?).string().ok()?;
        Some(text.into_owned())
    }

    pub(super) fn same_role_and_content(&self, other: &Self) -> Result<bool, JsonError> {
        Ok(same_part(self.role, other.role)? && same_content(self.content, other.content)?)
    }

    pub(super) fn same_reasoning(&self, other: &Self) -> Result<bool, JsonError> {
        same_part(self.reasoning, other.reasoning)
    }

    pub(super) fn same_tool_calls(&self, other: &Self) -> Result<bool, JsonError> {
        let Some(calls) = pairs_of_calls(self.tool_calls, other.tool_calls)? else {
            return same_part(self.tool_calls, other.tool_calls);
        };
        every(calls, |left, right| match both_objects(left, right)? {
            Some((left, right)) => Ok(same_keys(&left, &right)
                && same_values(&left, &right, |_, left, right| {
                    equal(Rule::Python, left, right)
                })?),
            None => equal(Rule::Python, left, right),
        })
    }

    /// The same calls, but for the spelling of their arguments.
    pub(super) fn loosely_same_tool_calls(&self, other: &Self) -> Result<bool, JsonError> {
        let Some(calls) = pairs_of_calls(self.tool_calls, other.tool_calls)? else {
            return Ok(false);
        };
        every(calls, |left, right| match both_objects(left, right)? {
            Some((left, right)) => {
                Ok(same_keys(&left, &right) && same_values(&left, &right, same_call_field)?)
            }
            None => equal(Rule::Python, left, right),
        })
    }
}

/// Whether a value counts as a missing one.
fn is_nothing(raw: &str) -> bool {
    match raw {
        "null" | "\"\"" => true,
        list => {
            let inner = list
                .strip_prefix('[')
                .and_then(|list| list.strip_suffix(']'));
            inner.is_some_and(|inner| inner.trim_ascii().is_empty())
        }
    }
}

fn same_part(left: Option<&str>, right: Option<&str>) -> Result<bool, JsonError> {
    match (left, right) {
        (None, None) => Ok(true),
        (Some(left), Some(right)) => equal(Rule::Python, left, right),
        _ => Ok(false),
    }
}

fn same_content(left: Option<&str>, right: Option<&str>) -> Result<bool, JsonError> {
    if left == right {
        return Ok(true);
    }
    match (text_of(left)?, text_of(right)?) {
        (Some(left), Some(right)) => Ok(left == right),
        (None, None) => same_part(left, right),
        _ => Ok(false),
    }
}

/// The text of a content: a string, or the text parts of a list, joined. `None` when there is anything else in it.
fn text_of(content: Option<&str>) -> Result<Option<Cow<'_, [u8]>>, JsonError> {
    let Some(raw) = content else {
        return Ok(Some(Cow::Borrowed(b"")));
    };
    match kind(raw)? {
        Kind::String => Ok(Some(code_points(raw))),
        Kind::Array => {
            let mut texts = Vec::new();
            for part in elements(raw)? {
                let Some(text) = text_part(part)? else {
                    return Ok(None);
                };
                texts.push(text);
            }
            Ok(Some(Cow::Owned(texts.join(PART_SEPARATOR))))
        }
        _ => Ok(None),
    }
}

/// The text of a part of type `text`.
fn text_part(raw: &str) -> Result<Option<Cow<'_, [u8]>>, JsonError> {
    if kind(raw)? != Kind::Object {
        return Ok(None);
    }
    let (mut is_text, mut text) = (false, None);
    for (key, value) in fields(raw)? {
        match key.as_ref() {
            b"type" => is_text = kind(value)? == Kind::String && *code_points(value) == *b"text",
            b"text" if kind(value)? == Kind::String => text = Some(code_points(value)),
            _ => {}
        }
    }
    Ok(text.filter(|_| is_text))
}

/// The calls of two lists of the same length, pair by pair. `None` when one is no list.
fn pairs_of_calls<'a>(
    left: Option<&'a str>,
    right: Option<&'a str>,
) -> Result<Option<Vec<(&'a str, &'a str)>>, JsonError> {
    let (Some(left), Some(right)) = (left, right) else {
        return Ok(None);
    };
    if kind(left)? != Kind::Array || kind(right)? != Kind::Array {
        return Ok(None);
    }
    let (left, right) = (elements(left)?, elements(right)?);
    if left.len() != right.len() {
        return Ok(None);
    }
    Ok(Some(left.into_iter().zip(right).collect()))
}

type Fields<'a> = Vec<Field<'a>>;

/// The fields of two calls without their `index`, which streaming clients add.
fn both_objects<'a>(
    left: &'a str,
    right: &'a str,
) -> Result<Option<(Fields<'a>, Fields<'a>)>, JsonError> {
    if kind(left)? != Kind::Object || kind(right)? != Kind::Object {
        return Ok(None);
    }
    let without_index = |raw| -> Result<Fields<'a>, JsonError> {
        let mut fields = fields(raw)?;
        fields.retain(|(key, _)| key.as_ref() != b"index");
        Ok(fields)
    };
    Ok(Some((without_index(left)?, without_index(right)?)))
}

fn same_call_field(key: &[u8], left: &str, right: &str) -> Result<bool, JsonError> {
    if key != b"function" || kind(left)? != Kind::Object || kind(right)? != Kind::Object {
        return equal(Rule::Python, left, right);
    }
    let (left, right) = (fields(left)?, fields(right)?);
    Ok(same_keys(&left, &right)
        && same_values(&left, &right, |key, left, right| {
            if key == b"arguments" {
                arguments::same(left, right)
            } else {
                equal(Rule::Python, left, right)
            }
        })?)
}

fn same_values(
    left: &[Field<'_>],
    right: &[Field<'_>],
    mut same: impl FnMut(&[u8], &str, &str) -> Result<bool, JsonError>,
) -> Result<bool, JsonError> {
    for ((key, left), (_, right)) in left.iter().zip(right) {
        if !same(key, left, right)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn every(
    pairs: Vec<(&str, &str)>,
    mut same: impl FnMut(&str, &str) -> Result<bool, JsonError>,
) -> Result<bool, JsonError> {
    for (left, right) in pairs {
        if !same(left, right)? {
            return Ok(false);
        }
    }
    Ok(true)
}
