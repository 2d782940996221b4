//! What to write in place of a value of the wrong type, where that can be told from what is there: units, short forms, quotes, dashes.

use serde_json::Value;

use super::words::{choices, members_of, names, texts};

/// What to write in place of a value of the wrong type, where that can be told.
pub(super) fn instead(schema: &Value, value: &Value, name: &str) -> Option<String> {
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
        // YAML keeps white space of its own at the ends in quotes alone; other white space stays without.
        let yaml = |sign: char| sign.is_ascii_whitespace();
        let hidden = value
            .as_str()
            .map(|all| all.trim_matches(yaml).replace(text, ""));
        return Some(match hidden.as_deref() {
            None | Some("") => "remove the quotes".to_owned(),
            Some(hidden) => format!(
                "write {name}: {text}, without the white space beside it ({})",
                hidden.escape_unicode()
            ),
        });
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quotes_are_only_removed_where_there_are_some() {
        let of = |text: &str| instead(&json!({"type": "integer"}), &json!(text), "steps").unwrap();
        assert_eq!(of("4"), "remove the quotes");
        assert_eq!(of(" 4 "), "remove the quotes");
        assert_eq!(
            of("4\u{a0}"),
            "write steps: 4, without the white space beside it (\\u{a0})"
        );
    }
}
