//! Filters and tests that are jinja2's in the engine too, but not to the letter; and those that [`super::dialect`] puts in.

use std::sync::Arc;

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

use super::variables::{is_integer, write_str};
use super::{dialect, text, tojson};

/// What jinja2 answers lazily: it can be iterated, but has no length, no items and no JSON.
#[derive(Debug)]
pub(super) struct Generator(Vec<Value>);

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.clone())
    }
}

pub(super) fn is_generator(value: &Value) -> bool {
    value.downcast_object_ref::<Generator>().is_some()
}

fn invalid(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail.into())
}

fn python_text(state: &State, value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    write_str(state, &mut text, value)?;
    Ok(text)
}

pub(super) fn add_to(environment: &mut Environment<'static>) {
    add_lazy(environment);
    environment.add_filter(dialect::AS_TEXT, as_text);
    environment.add_filter(dialect::AS_ITERABLE, as_iterable);
    environment.add_filter(dialect::AS_MARKUP, as_markup);
    environment.add_filter(dialect::ATTRIBUTE, attribute);
    environment.add_filter("tojson", tojson::tojson);
    environment.add_filter("string", as_text);
    environment.add_filter("trim", trim);
    environment.add_filter("indent", indent);
    environment.add_filter("join", join);
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_filter("items", items);
    environment.add_test("number", |value: &Value| {
        matches!(value.kind(), ValueKind::Number | ValueKind::Bool) || is_integer(value)
    });
    environment.add_test("integer", is_integer);
    environment.add_test("iterable", |value: &Value| is_iterable(value));
    environment.add_test("sequence", |value: &Value| {
        is_iterable(value) && !is_generator(value)
    });
}

/// The filters whose result jinja2 makes lazily.
fn add_lazy(environment: &mut Environment<'static>) {
    environment.add_filter("__map", filters::map);
    environment.add_filter("__select", filters::select);
    environment.add_filter("__reject", filters::reject);
    environment.add_filter("__selectattr", filters::selectattr);
    environment.add_filter("__rejectattr", filters::rejectattr);
    for (name, eager) in [
        ("map", "__map"),
        ("select", "__select"),
        ("reject", "__reject"),
        ("selectattr", "__selectattr"),
        ("rejectattr", "__rejectattr"),
    ] {
        environment.add_filter(
            name,
            move |state: &mut State,
                  arguments: Rest<Value>,
                  named: Kwargs|
                  -> Result<Value, Error> {
                let mut arguments = arguments.0;
                if named.args().next().is_some() {
                    arguments.push(Value::from(named));
                }
                let items = state.apply_filter(eager, &arguments)?;
                Ok(Value::from_object(Generator(items.try_iter()?.collect())))
            },
        );
    }
}

fn as_text(state: &State, value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() {
        return Ok(value.clone());
    }
    python_text(state, value).map(Value::from)
}

/// `markupsafe.escape`.
fn as_markup(value: &Value) -> Result<String, Error> {
    let text = value.as_str().ok_or_else(|| {
        invalid(format!(
            "only text can be added to markup, not {}",
            value.kind()
        ))
    })?;
    Ok(text
        .replace('&', "&amp;")
        .replace('>', "&gt;")
        .replace('<', "&lt;")
        .replace('\'', "&#39;")
        .replace('"', "&#34;"))
}

/// A method that is not called: it is something, and that is all.
#[derive(Debug)]
struct Method(String);

impl Object for Method {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "<built-in method {} of dict object>", self.0)
    }
}

fn attribute(value: &Value, name: &str) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Map => Ok(Value::from_object(Method(name.to_owned()))),
        _ => value.get_attr(name),
    }
}

fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Undefined
            | ValueKind::String
            | ValueKind::Seq
            | ValueKind::Map
            | ValueKind::Iterable
    )
}

fn as_iterable(value: &Value) -> Result<Value, Error> {
    if is_iterable(value) {
        Ok(value.clone())
    } else {
        Err(invalid(format!(
            "a value of type {} is not iterable",
            value.kind()
        )))
    }
}

fn trim(state: &State, value: &Value, characters: Option<&str>) -> Result<String, Error> {
    let text = python_text(state, value)?;
    Ok(match characters {
        Some(characters) => text.trim_matches(|c| characters.contains(c)),
        None => text::strip(&text),
    }
    .to_owned())
}

/// The lines after the first get the indentation; lines that are empty only with `blank`, the first only with `first`.
fn indent(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    // The keyword arguments arrive as the last positional one when there is a variadic parameter.
    let mut positional = positional.0;
    let named = match positional.pop_if(|last| last.is_kwargs()) {
        Some(last) => Kwargs::try_from(last)?,
        None => named,
    };
    let mut positional = positional.into_iter();
    let mut argument = |name: &str| -> Result<Option<Value>, Error> {
        let given = positional.next();
        let by_name: Option<Value> = named.get(name)?;
        Ok(given.or(by_name))
    };
    let indentation = match argument("width")? {
        None => " ".repeat(4),
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(i64::try_from(width)?.clamp(0, 1024)).unwrap_or(0)),
        },
    };
    let first = argument("first")?.is_some_and(|flag| flag.is_true());
    let blank = argument("blank")?.is_some_and(|flag| flag.is_true());
    named.assert_all_used()?;
    let text = match value.as_str() {
        Some(text) => format!("{text}\n"),
        None => {
            return Err(invalid(format!(
                "indent takes a string, not {}",
                value.kind()
            )));
        }
    };
    let mut indented = String::with_capacity(text.len());
    for (number, line) in text::lines(&text, false).into_iter().enumerate() {
        if number > 0 {
            indented.push('\n');
        }
        if if number == 0 {
            first
        } else {
            blank || !line.is_empty()
        } {
            indented.push_str(&indentation);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

#[expect(clippy::needless_pass_by_value, reason = "the form of a filter")]
fn join(
    state: &mut State,
    value: Value,
    separator: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let separator: Option<Value> = match separator {
        Some(separator) => Some(separator),
        None => named.get("d")?,
    };
    let attribute: Option<Value> = named.get("attribute")?;
    named.assert_all_used()?;
    let separator = separator.map_or(Ok(String::new()), |separator| {
        python_text(state, &separator)
    })?;
    let mut values = as_iterable(&value)?;
    if let Some(attribute) = attribute {
        let attribute = Kwargs::from_iter([("attribute", attribute)]);
        values = state.apply_filter("__map", &[values, Value::from(attribute)])?;
    }
    let mut joined = String::new();
    for (number, item) in values.try_iter()?.checked().enumerate() {
        if number > 0 {
            joined.push_str(&separator);
        }
        // A list may be a lazy sum of sums, and the separator long: both are paid for on the way.
        state.consume_fuel(1 + (separator.len() / 64) as u64)?;
        write_str(state, &mut joined, &item?)?;
    }
    Ok(joined)
}

fn length(value: &Value) -> Result<usize, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(0),
        _ if is_iterable(value) && !is_generator(value) => value
            .len()
            .ok_or_else(|| invalid("a value without a length")),
        kind => Err(invalid(format!("a value of type {kind} has no length"))),
    }
}

fn items(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(Value::from_object(Generator(Vec::new()))),
        ValueKind::Map => {
            let pairs = filters::items(value)?;
            Ok(Value::from_object(Generator(pairs.try_iter()?.collect())))
        }
        _ => Err(invalid("Can only get item pairs from a mapping.")),
    }
}
