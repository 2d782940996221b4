//! What is said about a value that does not fit its schema: what it should be, in the words of a person who writes manifests, and what to
//! write instead where that can be told from what is there.

use std::borrow::Cow;

use serde_json::Value;

use super::suggest;

/// Patterns of the definitions, and what to write so that a text matches. A test finds those that are missing here.
const PATTERNS: &[(&str, &str)] = &[
    (
        r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$",
        "write module.function, as in an import: letters, digits and _, with at least one dot",
    ),
    (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        "write a quantity such as 16Gi, 500m or 2",
    ),
    (
        "^https?://",
        "write a URL that begins with http:// or https://",
    ),
    (
        "^https?://[^/?#]+/?$",
        "write http://host:port, without a path",
    ),
    ("^/", "write a path that begins with /"),
    ("^[a-z0-9_]+$", "write lower-case letters, digits and _"),
    (
        "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
        "write letters, digits, '.', '_' and '-', with a letter or digit at both ends",
    ),
    (
        "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$",
        "write letters, digits, '.', '_' and '-', with a letter or digit at both ends",
    ),
];

/// What a text must look like to match a pattern.
pub(super) fn pattern(pattern: &str) -> Option<&'static str> {
    PATTERNS
        .iter()
        .find(|(known, _)| *known == pattern)
        .map(|(_, words)| *words)
}

/// A text that does not match its pattern.
pub(super) fn no_match(text: &str, wanted: &str) -> String {
    match pattern(wanted) {
        Some(words) => match text
            .strip_suffix(['B', 'b'])
            .filter(|_| words.contains("quantity"))
        {
            Some(unit) if !unit.is_empty() => format!(
                "\"{text}\": write {unit}, or {}i",
                unit.trim_end_matches('i')
            ),
            _ => format!("\"{text}\": {words}"),
        },
        None => format!("\"{text}\" does not match {wanted}"),
    }
}

/// The choices of an enum.
pub(super) fn choices(schema: &Value) -> Vec<&str> {
    texts(&schema["enum"])
}

/// A text that is none of the choices.
pub(super) fn no_choice(text: &str, choices: &[&str]) -> String {
    match suggest::closest(text, choices.iter().copied()) {
        Some(meant) => format!(
            "\"{text}\" is not one of {}; did you mean {meant}?",
            choices.join(", ")
        ),
        None => format!("\"{text}\" is not one of {}", choices.join(", ")),
    }
}

/// What a field that is required and missing should be, and what for.
pub(super) fn wanted(schema: &Value) -> String {
    let kind = kind(schema);
    if let Some(choice) = choice_of_members(schema) {
        return format!(", {kind}: {choice}");
    }
    let members = match schema["type"].as_str() {
        Some("object") => members(schema),
        _ => String::new(),
    };
    let purpose = schema["description"]
        .as_str()
        .map_or(String::new(), |description| {
            let sentence = description.split(". ").next().unwrap_or_default();
            format!(": {}", sentence.trim_end_matches('.'))
        });
    format!(", {kind}{members}{purpose}")
}

fn kind(schema: &Value) -> Cow<'static, str> {
    let choices = choices(schema);
    if !choices.is_empty() {
        return format!("one of {}", choices.join(", ")).into();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return "a text or a whole number".into();
    }
    match schema["type"].as_str() {
        Some("object") => "an object",
        Some("array") => "a list",
        Some("integer") => "a whole number",
        Some("number") => "a number",
        Some("boolean") => "true or false",
        _ => "a text",
    }
    .into()
}

/// The members that an object must have, or the few that it may have.
fn members(schema: &Value) -> String {
    let required = texts(&schema["required"]);
    if !required.is_empty() {
        return format!(" with {}", required.join(" and "));
    }
    let names: Vec<&str> = names(schema).collect();
    match names.len() {
        1..=6 => format!(" of {}", names.join(", ")),
        _ => String::new(),
    }
}

/// What is said about an object of which exactly one member must be set.
fn choice_of_members(schema: &Value) -> Option<&str> {
    let first = schema["x-kubernetes-validations"][0]["message"].as_str();
    first.filter(|message| message.starts_with("set exactly one"))
}

/// A field that is there and has no value.
pub(super) fn null(schema: &Value, at: &str) -> String {
    let name = last(at);
    if schema["type"] != "object" {
        return format!("is empty: write {}, or remove it", kind(schema));
    }
    let required = texts(&schema["required"]);
    if !required.is_empty() {
        return format!("is empty: it needs {}", required.join(" and "));
    }
    match choice_of_members(schema) {
        Some(message) => format!("is empty: {message}"),
        None => format!("is empty: write {name}: {{}}, or remove it"),
    }
}

/// A value of another type than its schema's.
pub(super) fn wrong_type(schema: &Value, value: &Value, at: &str) -> String {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("the text \"{text}\""),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    let hint = instead(schema, value, last(at)).map_or(String::new(), |hint| format!(": {hint}"));
    format!("must be {}, is {found}{hint}", kind(schema))
}

/// What to write in place of a value of the wrong type, where that can be told.
fn instead(schema: &Value, value: &Value, name: &str) -> Option<String> {
    if schema["x-kubernetes-int-or-string"] == true {
        return matches!(value, Value::Number(_)).then(|| "put it in quotes".to_owned());
    }
    match schema["type"].as_str() {
        Some("object") => object_instead(schema, value, name),
        Some("array") => list_instead(value, name),
        Some(kind @ ("integer" | "number")) => number_instead(value, name, kind == "number"),
        Some("boolean") => flag_instead(value, name),
        _ if !choices(schema).is_empty() => None,
        _ => text_instead(value, name),
    }
}

fn text_instead(value: &Value, name: &str) -> Option<String> {
    match value {
        Value::Bool(_) | Value::Number(_) => Some("put it in quotes".to_owned()),
        Value::Array(items) => match items.as_slice() {
            // A range in brackets is a list to YAML.
            [Value::String(only)] if only.contains(':') => {
                Some(format!("write {name}: \"[{only}]\", in quotes"))
            }
            [only] if !only.is_array() && !only.is_object() => {
                Some(format!("write {name}: {}", quoted(only)))
            }
            _ => None,
        },
        _ => None,
    }
}

fn flag_instead(value: &Value, name: &str) -> Option<String> {
    let meant = match value {
        Value::String(text) => match text.to_lowercase().as_str() {
            "true" | "yes" | "on" | "y" | "1" => true,
            "false" | "no" | "off" | "n" | "0" => false,
            _ => return None,
        },
        Value::Number(number) => number.as_i64().filter(|n| (0..=1).contains(n))? == 1,
        _ => return None,
    };
    Some(format!("write {name}: {meant}, without quotes"))
}

fn number_instead(value: &Value, name: &str, schema_is_number: bool) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim(),
        Value::Number(number) if name.ends_with("Percent") => {
            let share = number.as_f64().filter(|share| (0.0..1.0).contains(share))?;
            return Some(format!(
                "it counts in percent: write {name}: {:.0}",
                share * 100.0
            ));
        }
        Value::Array(items) if items.len() == 1 && items[0].is_number() => {
            return Some(format!("write {name}: {}", items[0]));
        }
        _ => return None,
    };
    if text.parse::<f64>().is_ok() {
        return Some("remove the quotes".to_owned());
    }
    if let Some(plain) = grouped(text) {
        return Some(format!("write {name}: {plain}"));
    }
    if schema_is_number && text.matches(',').count() == 1 {
        let point = text.replace(',', ".");
        if point.parse::<f64>().is_ok() {
            return Some(format!("write {name}: {point}, with a point"));
        }
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = (text[..split].parse::<f64>().ok()?, text[split..].trim());
    let is_time = name.ends_with("econds");
    let factor = match (is_time, unit) {
        (true, "s" | "sec" | "seconds") | (false, "%" | "tokens") => 1.0,
        (true, "m" | "min" | "minutes") => 60.0,
        (true, "h" | "hours") => 3600.0,
        (true, "d" | "days") => 86_400.0,
        (true, "ms") => 0.001,
        (false, "k" | "K") => 1000.0,
        (false, "Ki") => 1024.0,
        (false, "m" | "M") => 1_000_000.0,
        _ => return None,
    };
    let whole = (number * factor).max(1.0);
    Some(if is_time {
        format!("it counts in seconds: write {name}: {whole:.0}")
    } else {
        format!("write the number alone, {name}: {whole:.0}")
    })
}

/// A number with separators of thousands.
fn grouped(text: &str) -> Option<String> {
    let mut parts = text.split([',', ' ', '\'']);
    let first = parts
        .next()
        .filter(|first| (1..=3).contains(&first.len()))?;
    let rest: Vec<&str> = parts.collect();
    let is_grouped = !rest.is_empty() && rest.iter().all(|part| part.len() == 3);
    let plain = format!("{first}{}", rest.concat());
    (is_grouped && plain.chars().all(|c| c.is_ascii_digit())).then_some(plain)
}

fn list_instead(value: &Value, name: &str) -> Option<String> {
    match value {
        Value::String(text) if text.starts_with('-') && text.contains(' ') => {
            let words: Vec<String> = text
                .split_whitespace()
                .map(|word| Value::from(word).to_string())
                .collect();
            Some(format!("write {name}: [{}]", words.join(", ")))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Some(format!("write {name}: [{}]", quoted(value)))
        }
        Value::Object(_) => Some("begin each item with \"- \"".to_owned()),
        Value::Null | Value::Array(_) => None,
    }
}

/// A short form that an object of this schema does not have, written out.
fn object_instead(schema: &Value, value: &Value, name: &str) -> Option<String> {
    let required = texts(&schema["required"]);
    let free_form = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match value {
        Value::Bool(_) if schema["properties"]["enabled"]["type"] == "boolean" => {
            Some(format!("write {name}: {{enabled: {value}}}"))
        }
        Value::Bool(true) if required.is_empty() => Some(format!("write {name}: {{}}")),
        Value::String(text) if free_form && name == "inline" => Some(format!(
            "write {{prompt: {}}}",
            quoted(&Value::from(text.as_str()))
        )),
        Value::Bool(false) => Some("remove it".to_owned()),
        Value::String(text) if !free_form => {
            let by_choice = members_of(schema).find(|(_, member)| {
                let choices = choices(member);
                choices
                    .iter()
                    .any(|choice| choice.eq_ignore_ascii_case(text))
            });
            if let Some((member, inner)) = by_choice {
                let choice = choices(inner)
                    .into_iter()
                    .find(|choice| choice.eq_ignore_ascii_case(text))?;
                return Some(format!("write {name}: {{{member}: {choice}}}"));
            }
            text_instead_of_object(schema, &required, text, name)
        }
        Value::Number(_) if required.len() == 1 => {
            let numeric = matches!(
                schema["properties"][required[0]]["type"].as_str(),
                Some("integer" | "number")
            );
            numeric.then(|| format!("write {name}: {{{}: {value}}}", required[0]))
        }
        Value::Array(items) if items.len() == 1 && items[0].is_object() => {
            Some("remove the dash: it is one object, not a list".to_owned())
        }
        _ if free_form => None,
        _ => fields(schema),
    }
}

/// An object that was given by one of its texts.
fn text_instead_of_object(
    schema: &Value,
    required: &[&str],
    text: &str,
    name: &str,
) -> Option<String> {
    let properties = &schema["properties"];
    if let Some((key, rest)) = text
        .split_once(':')
        .filter(|(key, _)| properties.get(key).is_some())
    {
        return Some(format!("write a space after the colon, {key}: {rest}"));
    }
    if properties[text]["type"] == "object" {
        return Some(format!("write {name}: {{{text}: {{}}}}"));
    }
    if required.is_empty() && properties.get("url").is_some() {
        let url = if text.contains("://") {
            text.to_owned()
        } else {
            format!("file:///.../{text}")
        };
        return Some(format!("write {name}: {{url: \"{url}\"}}"));
    }
    let Some(first) = named_first(required) else {
        return fields(schema);
    };
    if properties[first]["type"] != "string" || !choices(&properties[first]).is_empty() {
        return fields(schema);
    }
    let others = required.iter().filter(|member| **member != first);
    let others: Vec<String> = others.map(|member| format!(", {member}: ...")).collect();
    let value = quoted(&Value::from(text));
    Some(format!(
        "write {name}: {{{first}: {value}{}}}",
        others.concat()
    ))
}

fn fields(schema: &Value) -> Option<String> {
    let names: Vec<&str> = names(schema).take(12).collect();
    (!names.is_empty()).then(|| format!("its fields are {}", names.join(", ")))
}

/// The required member that a text in place of the object most likely is.
fn named_first<'a>(required: &[&'a str]) -> Option<&'a str> {
    const NAMING: [&str; 4] = ["name", "claimName", "path", "url"];
    let naming = NAMING.iter().find(|name| required.contains(name));
    naming
        .copied()
        .filter(|_| !required.is_empty())
        .or_else(|| required.first().copied())
}

fn members_of(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn names(schema: &Value) -> impl Iterator<Item = &str> {
    members_of(schema).map(|(name, _)| name.as_str())
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// A scalar as it can stand in a flow list.
fn quoted(value: &Value) -> String {
    match value.as_str() {
        Some(text)
            if !text.is_empty()
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
                && !text.starts_with(|c: char| c.is_ascii_digit() || "-.".contains(c)) =>
        {
            text.to_owned()
        }
        _ => value.to_string(),
    }
}

/// The name of the field at a path.
fn last(at: &str) -> &str {
    let field = at.rsplit('.').next().unwrap_or(at);
    field.split('[').next().unwrap_or(field)
}
