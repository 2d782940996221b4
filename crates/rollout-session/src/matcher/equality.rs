//! Equality of JSON values in their text.

use std::borrow::Cow;

use super::decimal::{self, Decimal};
use super::text::code_points;
use crate::json::{Cursor, JsonError, Kind};

/// How numbers and truth values are compared. Everything else is compared in the same way: strings by code points, lists in order,
/// objects without, of a repeated key the last value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// As Python's `==`.
    Python,
    /// As Python's `==`, but of values of the same type only.
    Typed,
    /// Numbers by their exact decimal value. `left_parsed` and `right_parsed` say that a side went through Python's floats.
    Decimal {
        left_parsed: bool,
        right_parsed: bool,
    },
}

impl Rule {
    /// Whether two equal texts are equal values: not where only one of them was rounded.
    fn same_for_equal_texts(self) -> bool {
        match self {
            Self::Python | Self::Typed => true,
            Self::Decimal {
                left_parsed,
                right_parsed,
            } => left_parsed == right_parsed,
        }
    }
}

/// The type of a value that is known to be JSON.
pub(super) fn kind(raw: &str) -> Result<Kind, JsonError> {
    Cursor::new(raw).kind()
}

/// The elements of a list.
pub(super) fn elements(raw: &str) -> Result<Vec<&str>, JsonError> {
    let mut elements = Vec::new();
    Cursor::new(raw).array::<JsonError>(|_, value| {
        elements.push(&raw[value.span()?]);
        Ok(())
    })?;
    Ok(elements)
}

/// A field: the code points of its key, and its value.
pub(super) type Field<'a> = (Cow<'a, [u8]>, &'a str);

/// The fields of an object as they are written, repeated keys included.
pub(super) fn written_fields(raw: &str) -> Result<Vec<Field<'_>>, JsonError> {
    let mut fields = Vec::new();
    Cursor::new(raw).object::<JsonError>(|key, value| {
        let span = value.span()?;
        let before = raw[key.start..span.start].trim_end();
        let quoted = before.strip_suffix(':').unwrap_or(before).trim_end();
        fields.push((code_points(quoted), &raw[span]));
        Ok(())
    })?;
    Ok(fields)
}

/// The fields of an object by key. Of a repeated key the last value counts.
pub(super) fn fields(raw: &str) -> Result<Vec<Field<'_>>, JsonError> {
    let mut fields = written_fields(raw)?;
    // A stable sort keeps repeated keys in the order in which they are written.
    fields.sort_by(|(left, _), (right, _)| left.cmp(right));
    fields.reverse();
    fields.dedup_by(|(later, _), (earlier, _)| later == earlier);
    Ok(fields)
}

/// Whether two values are equal.
pub(super) fn equal(rule: Rule, left: &str, right: &str) -> Result<bool, JsonError> {
    if left == right && rule.same_for_equal_texts() {
        return Ok(true);
    }
    Ok(match (kind(left)?, kind(right)?) {
        (Kind::Null, Kind::Null) => true,
        (Kind::String, Kind::String) => code_points(left) == code_points(right),
        (Kind::Number, Kind::Number) => same_numbers(rule, left, right),
        (Kind::Bool, Kind::Bool) => left == right,
        (Kind::Number | Kind::Bool, Kind::Number | Kind::Bool) => {
            rule == Rule::Python && decimal::python_equal(left, right)
        }
        (Kind::Array, Kind::Array) => {
            let (left, right) = (elements(left)?, elements(right)?);
            left.len() == right.len() && all_equal(rule, left.into_iter().zip(right))?
        }
        (Kind::Object, Kind::Object) => {
            let (left, right) = (fields(left)?, fields(right)?);
            same_keys(&left, &right) && all_equal(rule, values(&left, &right))?
        }
        _ => false,
    })
}

/// Whether two objects have the same keys.
pub(super) fn same_keys(left: &[Field<'_>], right: &[Field<'_>]) -> bool {
    left.len() == right.len()
        && left
            .iter()
            .zip(right)
            .all(|(left, right)| left.0 == right.0)
}

/// The values of two objects of the same keys, pair by pair.
fn values<'a>(
    left: &'a [Field<'a>],
    right: &'a [Field<'a>],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    left.iter()
        .zip(right)
        .map(|(left, right)| (left.1, right.1))
}

fn all_equal<'a>(
    rule: Rule,
    mut pairs: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<bool, JsonError> {
    pairs.try_fold(true, |so_far, (left, right)| {
        Ok(so_far && equal(rule, left, right)?)
    })
}

fn same_numbers(rule: Rule, left: &str, right: &str) -> bool {
    match rule {
        Rule::Python => decimal::python_equal(left, right),
        Rule::Typed => {
            decimal::is_integer(left) == decimal::is_integer(right)
                && decimal::python_equal(left, right)
        }
        Rule::Decimal {
            left_parsed,
            right_parsed,
        } => {
            let left = number(left, left_parsed);
            left.is_some() && left == number(right, right_parsed)
        }
    }
}

/// The decimal value of a number, read exactly or as Python's parser keeps it.
pub(super) fn number(raw: &str, parsed: bool) -> Option<Decimal> {
    if parsed {
        Decimal::as_parsed(raw)
    } else {
        Decimal::exact(raw)
    }
}
