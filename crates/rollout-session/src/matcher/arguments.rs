//! Arguments of a tool call: a JSON object, written as text or as a value.

use std::borrow::Cow;

use super::equality::{Rule, elements, equal, kind, number, written_fields};
use super::text::has_lone_surrogate;
use crate::json::{Cursor, JsonError, Kind};

/// Arguments that are an object.
struct Object<'a> {
    text: Cow<'a, str>,
    /// They came as a value, so that their numbers went through Python's floats.
    parsed: bool,
}

/// Whether two arguments are the same. Where one of them is no object, they must be equal and of the same types.
pub(super) fn same(left: &str, right: &str) -> Result<bool, JsonError> {
    let (Some(left_object), Some(right_object)) = (read(left)?, read(right)?) else {
        return equal(Rule::Typed, left, right);
    };
    let rule = Rule::Decimal {
        left_parsed: left_object.parsed,
        right_parsed: right_object.parsed,
    };
    equal(rule, &left_object.text, &right_object.text)
}

/// Arguments as an object; nothing, an empty text and `null` are the empty one.
fn read(raw: &str) -> Result<Option<Object<'_>>, JsonError> {
    let object = |text, parsed| Some(Object { text, parsed });
    Ok(match kind(raw)? {
        Kind::Null => object(Cow::Borrowed("{}"), false),
        Kind::Object => holds(raw, true)?.then_some(Object {
            text: Cow::Borrowed(raw),
            parsed: true,
        }),
        Kind::String if !has_lone_surrogate(raw) => {
            let text = Cursor::new(raw).string()?;
            if text.is_empty() {
                object(Cow::Borrowed("{}"), false)
            } else if is_object(&text) {
                object(text, false)
            } else {
                None
            }
        }
        _ => None,
    })
}

/// Whether a text is a JSON object as a strict parser sees it: no key twice, no control characters, and numbers that a decimal holds.
fn is_object(text: &str) -> bool {
    let mut cursor = Cursor::new(text);
    let whole = cursor.kind().is_ok_and(|kind| kind == Kind::Object)
        && cursor.skip().is_ok()
        && cursor.finish().is_ok();
    whole && holds(text, false).unwrap_or(false)
}

/// Whether every part of a value can be compared as decimals are. A value that was `parsed` may repeat keys: the parser kept the last.
fn holds(raw: &str, parsed: bool) -> Result<bool, JsonError> {
    match kind(raw)? {
        Kind::Number => Ok(number(raw.trim(), parsed).is_some()),
        Kind::String => Ok(parsed || !has_control_character(raw)),
        Kind::Array => all_hold(elements(raw)?.into_iter(), parsed),
        Kind::Object => {
            let fields = written_fields(raw)?;
            if !parsed {
                let mut keys: Vec<&[u8]> = fields.iter().map(|(key, _)| key.as_ref()).collect();
                keys.sort_unstable();
                if keys.windows(2).any(|pair| pair[0] == pair[1]) || has_control_key(raw)? {
                    return Ok(false);
                }
            }
            all_hold(fields.iter().map(|(_, value)| *value), parsed)
        }
        Kind::Null | Kind::Bool => Ok(true),
    }
}

fn all_hold<'a>(
    mut values: impl Iterator<Item = &'a str>,
    parsed: bool,
) -> Result<bool, JsonError> {
    values.try_fold(true, |so_far, value| Ok(so_far && holds(value, parsed)?))
}

fn has_control_character(raw: &str) -> bool {
    raw.bytes().any(|byte| byte < 0x20)
}

fn has_control_key(raw: &str) -> Result<bool, JsonError> {
    let mut found = false;
    Cursor::new(raw).object::<JsonError>(|key, value| {
        let start = value.span()?.start;
        let quoted =
            raw[key.start..start].trim_end_matches(|c: char| c == ':' || c.is_ascii_whitespace());
        found |= has_control_character(quoted);
        Ok(())
    })?;
    Ok(found)
}
