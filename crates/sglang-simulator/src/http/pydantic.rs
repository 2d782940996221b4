//! Types of body fields as pydantic checks them before a route sees the body: what it takes for what, and its words for the rest.
//!
//! It is lax: `"7"` is an integer, `"yes"` a boolean. [`boolean`], [`integer`] and [`float`] read values as it does, so that what is checked and
//! what is used cannot differ.

use serde_json::{Map, Number, Value};

use super::problem::{Location, Problem};
use crate::wire::python;

/// The type of a field.
#[derive(Debug)]
pub(super) enum Kind {
    Bool,
    Int,
    Float,
    Str,
    List(&'static Kind),
    /// A list whose items may be null.
    Nullables(&'static Kind),
    Dict(&'static str),
    DictOf(&'static str, &'static Kind),
    /// One of these texts; the second field is how they are enumerated.
    Literal(&'static [&'static str], &'static str),
    /// Any of these.
    Union(&'static [Kind]),
    /// A model with fields of its own; the name counts within a union only.
    Object(&'static str, &'static [Field]),
    /// By a validator of SGLang's own.
    By(Validator),
}

/// Looks at a value and tells what is wrong with it.
pub(super) type Validator = fn(&Location, &Value, &mut Vec<Problem>);

/// A field of a body.
#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    kind: Kind,
    presence: Presence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// It may be absent, and null.
    Optional,
    /// It may be absent, but not null.
    Filled,
    Required,
}

/// A field that may be null.
pub(super) const fn optional(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        presence: Presence::Optional,
    }
}

/// A field that may be absent, but not null.
pub(super) const fn filled(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        presence: Presence::Filled,
    }
}

/// A field that has to be there.
pub(super) const fn required(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        presence: Presence::Required,
    }
}

/// Checks the fields of an object, in their order.
pub(super) fn check(
    known: &[Field],
    at: &Location,
    fields: &Map<String, Value>,
    problems: &mut Vec<Problem>,
) {
    for field in known {
        match (field.presence, fields.get(field.name)) {
            (Presence::Required, None) => {
                let whole = Value::Object(fields.clone());
                problems.push(at.key(field.name).missing(&whole));
            }
            (_, None) | (Presence::Optional, Some(Value::Null)) => {}
            (_, Some(value)) => field.kind.check(value, &at.key(field.name), problems),
        }
    }
}

impl Kind {
    /// How pydantic names it.
    fn label(&self) -> String {
        match self {
            Self::Bool => "bool".into(),
            Self::Int => "int".into(),
            Self::Float => "float".into(),
            Self::Str => "str".into(),
            Self::List(of) => format!("list[{}]", of.label()),
            Self::Nullables(of) => format!("list[nullable[{}]]", of.label()),
            Self::Dict(types) | Self::DictOf(types, _) => format!("dict[{types}]"),
            Self::Literal(texts, _) => {
                let texts: Vec<_> = texts.iter().map(|text| python::repr_str(text)).collect();
                format!("literal[{}]", texts.join(","))
            }
            Self::Union(kinds) => {
                let kinds: Vec<_> = kinds.iter().map(Self::label).collect();
                format!("union[{}]", kinds.join(","))
            }
            Self::Object(name, _) => (*name).into(),
            Self::By(_) => String::new(),
        }
    }

    pub(super) fn check(&self, value: &Value, at: &Location, problems: &mut Vec<Problem>) {
        match (self, value) {
            (Self::Bool, _) => problems.extend(bool_problem(value, at)),
            (Self::Int, _) => problems.extend(int_problem(value, at)),
            (Self::Float, _) => problems.extend(float_problem(value, at)),
            (Self::Str, Value::String(_)) | (Self::Dict(_), Value::Object(_)) => {}
            (Self::Str, _) => {
                problems.push(at.problem("string_type", "Input should be a valid string", value));
            }
            (Self::List(of), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    of.check(item, &at.index(index), problems);
                }
            }
            (Self::Nullables(of), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate().filter(|(_, item)| !item.is_null()) {
                    of.check(item, &at.index(index), problems);
                }
            }
            (Self::List(_) | Self::Nullables(_), _) => problems.push(at.no_list(value)),
            (Self::DictOf(_, of), Value::Object(fields)) => {
                for (name, value) in fields {
                    of.check(value, &at.key(name), problems);
                }
            }
            (Self::Dict(_) | Self::DictOf(..), _) => {
                problems.push(at.problem("dict_type", "Input should be a valid dictionary", value));
            }
            (Self::Literal(texts, expected), _) => {
                if !value.as_str().is_some_and(|text| texts.contains(&text)) {
                    problems.push(at.no_literal(expected, value));
                }
            }
            (Self::Union(kinds), _) => {
                let mut of_all = Vec::new();
                for kind in *kinds {
                    let before = of_all.len();
                    kind.check(value, &at.key(&kind.label()), &mut of_all);
                    if of_all.len() == before {
                        return;
                    }
                }
                problems.append(&mut of_all);
            }
            (Self::Object(_, known), Value::Object(fields)) => check(known, at, fields, problems),
            (Self::Object(..), _) => problems.push(at.no_object(value)),
            (Self::By(validator), _) => validator(at, value, problems),
        }
    }
}

/// What is a boolean.
pub(super) fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => match number.as_f64()? {
            0.0 => Some(false),
            1.0 => Some(true),
            _ => None,
        },
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" | "t" | "y" => Some(true),
            "false" | "0" | "no" | "off" | "f" | "n" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// What is an integer.
pub(super) fn integer(value: &Value) -> Option<Number> {
    match value {
        Value::Bool(flag) => Some(i64::from(*flag).into()),
        Value::Number(number) if !number.is_f64() => Some(number.clone()),
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole")]
        Value::Number(number) => number
            .as_f64()
            .filter(|value| value.fract() == 0.0)
            .map(|value| (value as i64).into()),
        Value::String(text) => {
            let text = text.trim();
            let whole = text
                .split_once('.')
                .filter(|(_, zeros)| !zeros.is_empty() && zeros.bytes().all(|digit| digit == b'0'));
            whole
                .map_or(text, |(whole, _)| whole)
                .parse::<i64>()
                .ok()
                .map(Into::into)
        }
        _ => None,
    }
}

/// What is a number.
pub(super) fn float(value: &Value) -> Option<Number> {
    match value {
        Value::Bool(flag) => Number::from_f64(f64::from(u8::from(*flag))),
        Value::Number(number) => Number::from_f64(number.as_f64()?),
        Value::String(text) => Number::from_f64(text.trim().parse().ok()?),
        _ => None,
    }
}

fn bool_problem(value: &Value, at: &Location) -> Option<Problem> {
    if boolean(value).is_some() {
        return None;
    }
    let is_readable = match value {
        Value::String(_) => true,
        Value::Number(number) => number.as_f64().is_some_and(|value| value.fract() == 0.0),
        _ => false,
    };
    Some(if is_readable {
        let message = "Input should be a valid boolean, unable to interpret input";
        at.problem("bool_parsing", message, value)
    } else {
        at.problem("bool_type", "Input should be a valid boolean", value)
    })
}

fn int_problem(value: &Value, at: &Location) -> Option<Problem> {
    if integer(value).is_some() {
        return None;
    }
    let (kind, message) = match value {
        Value::String(_) => (
            "int_parsing",
            "Input should be a valid integer, unable to parse string as an integer",
        ),
        Value::Number(_) => (
            "int_from_float",
            "Input should be a valid integer, got a number with a fractional part",
        ),
        _ => ("int_type", "Input should be a valid integer"),
    };
    Some(at.problem(kind, message, value))
}

fn float_problem(value: &Value, at: &Location) -> Option<Problem> {
    if float(value).is_some() {
        return None;
    }
    let (kind, message) = match value {
        Value::String(_) => (
            "float_parsing",
            "Input should be a valid number, unable to parse string as a number",
        ),
        _ => ("float_type", "Input should be a valid number"),
    };
    Some(at.problem(kind, message, value))
}
