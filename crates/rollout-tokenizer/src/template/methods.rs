//! Methods of Python's values that templates call: those that `minijinja_contrib` lacks, or has with Rust's idea of a space.

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::text;

/// What the sandbox of `transformers` refuses: it would change a value.
const CHANGE_LISTS: [&str; 8] = [
    "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort",
];
const CHANGE_DICTS: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];

pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            match of_string(state, text, method, args) {
                Some(result) => result,
                None => unknown_method_callback(state, value, method, args),
            }
        }
        ValueKind::Seq | ValueKind::Iterable if CHANGE_LISTS.contains(&method) => {
            Err(refused(method, "list"))
        }
        ValueKind::Seq | ValueKind::Iterable => of_list(state, value, method, args),
        ValueKind::Map if CHANGE_DICTS.contains(&method) => Err(refused(method, "dict")),
        ValueKind::Map if method == "copy" => Ok(value.clone()),
        _ => unknown_method_callback(state, value, method, args),
    }
}

fn refused(method: &str, kind: &str) -> Error {
    invalid(format!(
        "access to attribute '{method}' of '{kind}' object is unsafe."
    ))
}

fn invalid(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail.into())
}

fn of_list(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match method {
        "copy" => Ok(value.clone()),
        "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            for (index, item) in value.try_iter()?.checked().enumerate() {
                if item? == *wanted {
                    return Ok(Value::from(index));
                }
            }
            Err(invalid("list.index(x): x not in list"))
        }
        _ => unknown_method_callback(state, value, method, args),
    }
}

/// Arguments of a method, by position or by name.
struct Arguments<'a> {
    positional: &'a [Value],
    named: Option<Kwargs>,
}

impl<'a> Arguments<'a> {
    fn new(args: &'a [Value]) -> Result<Self, Error> {
        match args.split_last() {
            Some((last, rest)) if last.is_kwargs() => Ok(Self {
                positional: rest,
                named: Some(Kwargs::try_from(last.clone())?),
            }),
            _ => Ok(Self {
                positional: args,
                named: None,
            }),
        }
    }

    fn get(&self, index: usize, name: &str) -> Option<Value> {
        let named = || self.named.as_ref()?.get(name).ok();
        self.positional
            .get(index)
            .cloned()
            .or_else(named)
            .filter(|value: &Value| !value.is_none())
    }

    fn text(&self, index: usize, name: &str) -> Result<Option<String>, Error> {
        self.get(index, name)
            .map(|value| {
                value.as_str().map(str::to_owned).ok_or_else(|| {
                    invalid(format!("{name} must be a string, not {}", value.kind()))
                })
            })
            .transpose()
    }

    fn limit(&self, index: usize) -> Result<usize, Error> {
        match self.get(index, "maxsplit") {
            None => Ok(usize::MAX),
            Some(limit) => Ok(usize::try_from(i64::try_from(limit)?).unwrap_or(usize::MAX)),
        }
    }
}

fn of_string(
    state: &State,
    text: &str,
    method: &str,
    args: &[Value],
) -> Option<Result<Value, Error>> {
    let all = |test: fn(char) -> bool| Value::from(!text.is_empty() && text.chars().all(test));
    let result = match method {
        "strip" => stripped(text, args, true, true),
        "lstrip" => stripped(text, args, true, false),
        "rstrip" => stripped(text, args, false, true),
        "split" => split(text, args),
        "rsplit" => rsplit(text, args),
        "splitlines" => Arguments::new(args).map(|arguments| {
            let keep = arguments
                .get(0, "keepends")
                .is_some_and(|keep| keep.is_true());
            text::lines(text, keep)
                .into_iter()
                .map(Value::from)
                .collect()
        }),
        "removeprefix" => {
            one_text(args).map(|prefix| Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            one_text(args).map(|suffix| Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" => one_text(args).and_then(|separator| partition(text, separator)),
        "rpartition" => one_text(args).and_then(|separator| rpartition(text, separator)),
        "index" | "rindex" => one_text(args).and_then(|wanted| {
            let found = if method == "index" {
                text.find(wanted)
            } else {
                text.rfind(wanted)
            };
            found
                .map(|at| Value::from(text[..at].chars().count()))
                .ok_or_else(|| invalid("substring not found"))
        }),
        "isspace" => Ok(all(text::is_space)),
        "isdecimal" | "isdigit" | "isnumeric" => Ok(all(char::is_numeric)),
        "isidentifier" => Ok(Value::from(is_identifier(text))),
        "casefold" => Ok(Value::from(text.to_lowercase().replace('ß', "ss"))),
        "swapcase" => Ok(Value::from(swapped(text))),
        "title" => Ok(Value::from(titled(text))),
        "capitalize" => Ok(Value::from(capitalized(text))),
        "zfill" => width(args).and_then(|width| filled(state, text, width)),
        "ljust" | "rjust" | "center" => justified(state, text, method, args),
        _ => return None,
    };
    Some(result)
}

fn one_text(args: &[Value]) -> Result<&str, Error> {
    let (text,): (&str,) = from_args(args)?;
    Ok(text)
}

fn stripped(text: &str, args: &[Value], start: bool, end: bool) -> Result<Value, Error> {
    let characters = Arguments::new(args)?.text(0, "chars")?;
    let strips = |c: char| match &characters {
        Some(characters) => characters.contains(c),
        None => text::is_space(c),
    };
    let mut rest = text;
    if start {
        rest = rest.trim_start_matches(strips);
    }
    if end {
        rest = rest.trim_end_matches(strips);
    }
    Ok(Value::from(rest))
}

fn separator(arguments: &Arguments<'_>) -> Result<Option<String>, Error> {
    let separator = arguments.text(0, "sep")?;
    match &separator {
        Some(text) if text.is_empty() => Err(invalid("empty separator")),
        _ => Ok(separator),
    }
}

fn split(text: &str, args: &[Value]) -> Result<Value, Error> {
    let arguments = Arguments::new(args)?;
    let limit = arguments.limit(1)?;
    Ok(match separator(&arguments)? {
        None => text::split_spaces(text, limit)
            .into_iter()
            .map(Value::from)
            .collect(),
        Some(separator) => text
            .splitn(limit.saturating_add(1), separator.as_str())
            .map(Value::from)
            .collect(),
    })
}

fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let arguments = Arguments::new(args)?;
    let limit = arguments.limit(1)?;
    let mut parts: Vec<&str> = match separator(&arguments)? {
        None => {
            return Ok(text::rsplit_spaces(text, limit)
                .into_iter()
                .map(Value::from)
                .collect());
        }
        Some(separator) => text
            .rsplitn(limit.saturating_add(1), separator.as_str())
            .collect(),
    };
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}

fn partition(text: &str, separator: &str) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    Ok(match text.split_once(separator) {
        Some((before, after)) => three(before, separator, after),
        None => three(text, "", ""),
    })
}

fn rpartition(text: &str, separator: &str) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    Ok(match text.rsplit_once(separator) {
        Some((before, after)) => three(before, separator, after),
        None => three("", "", text),
    })
}

fn three(first: &str, second: &str, third: &str) -> Value {
    Value::from(Tuple::from([first, second, third].map(Value::from)))
}

fn is_identifier(text: &str) -> bool {
    let mut characters = text.chars();
    characters
        .next()
        .is_some_and(|first| first == '_' || first.is_alphabetic())
        && characters.all(|c| c == '_' || c.is_alphanumeric())
}

fn swapped(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            if c.is_uppercase() {
                c.to_lowercase().collect::<Vec<_>>()
            } else {
                c.to_uppercase().collect()
            }
        })
        .collect()
}

/// Every letter after something that is no letter is upper case, all others lower.
fn titled(text: &str) -> String {
    let mut after_letter = false;
    let mut titled = String::with_capacity(text.len());
    for character in text.chars() {
        if after_letter {
            titled.extend(character.to_lowercase());
        } else {
            titled.extend(character.to_uppercase());
        }
        after_letter = character.is_lowercase() || character.is_uppercase();
    }
    titled
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first
            .to_uppercase()
            .chain(characters.as_str().to_lowercase().chars())
            .collect(),
        None => String::new(),
    }
}

fn width(args: &[Value]) -> Result<usize, Error> {
    let (width,): (i64,) = from_args(args)?;
    Ok(usize::try_from(width).unwrap_or(0))
}

/// How much is missing to a width; paid for before it is made.
fn missing(state: &State, text: &str, width: usize) -> Result<usize, Error> {
    let missing = width.saturating_sub(text.chars().count());
    state.consume_fuel(missing as u64)?;
    Ok(missing)
}

fn filled(state: &State, text: &str, width: usize) -> Result<Value, Error> {
    let zeros = "0".repeat(missing(state, text, width)?);
    let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
    Ok(Value::from(format!("{sign}{zeros}{digits}")))
}

fn justified(state: &State, text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (width, fill): (i64, Option<char>) = from_args(args)?;
    let width = usize::try_from(width).unwrap_or(0);
    let missing = missing(state, text, width)?;
    let before = match method {
        "ljust" => 0,
        "rjust" => missing,
        // CPython puts the odd one to the left if the width is odd.
        _ => missing / 2 + (missing & width & 1),
    };
    let fill = |count: usize| fill.unwrap_or(' ').to_string().repeat(count);
    Ok(Value::from(format!(
        "{}{text}{}",
        fill(before),
        fill(missing - before)
    )))
}
