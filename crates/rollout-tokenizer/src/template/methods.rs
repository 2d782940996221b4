//! Methods of Python's `str` that templates call, beyond those of `minijinja_contrib`.

use minijinja::value::{Tuple, from_args};
use minijinja::{Error, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return unknown_method_callback(state, value, method, args);
    };
    match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (before, after) = text
                .split_once(separator)
                .map_or((text, None), |(b, a)| (b, Some(a)));
            Ok(three(
                before,
                after.map_or("", |_| separator),
                after.unwrap_or(""),
            ))
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (before, after) = text
                .rsplit_once(separator)
                .map_or((None, text), |(b, a)| (Some(b), a));
            Ok(three(
                before.unwrap_or(""),
                before.map_or("", |_| separator),
                after,
            ))
        }
        "rsplit" => {
            let (separator, limit): (&str, Option<usize>) = from_args(args)?;
            let mut parts: Vec<&str> = match limit {
                Some(limit) => text.rsplitn(limit.saturating_add(1), separator).collect(),
                None => text.rsplit(separator).collect(),
            };
            parts.reverse();
            Ok(parts.into_iter().map(Value::from).collect())
        }
        _ => unknown_method_callback(state, value, method, args),
    }
}

fn three(first: &str, second: &str, third: &str) -> Value {
    Value::from(Tuple::from([first, second, third].map(Value::from)))
}
