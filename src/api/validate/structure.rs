//! The structural half of a schema: types, required and unknown fields, enums, bounds, patterns, keys of lists.
//!
//! The same verdict as the API server's, in words for the person who wrote the file. Rules in CEL are not looked at here.

use std::collections::HashMap;
use std::fmt::Write;

use parking_lot::Mutex;
use regex::Regex;
use serde_json::{Map, Value};

use super::suggest;
use super::violation::Violation;
use crate::api::manifest::path;

/// What an unknown field means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The API server would drop it: an error.
    Refused,
    /// A newer API server may know it: a warning.
    Suspicious,
}

/// Walks a value along its schema.
pub(super) struct Structure<'a> {
    pub(super) unknown: Unknown,
    /// Paths (from the start of the walk) of required fields that may be absent, because the value is merged over another.
    pub(super) optional: &'a [&'a str],
    pub(super) found: Vec<Violation>,
}

impl Structure<'_> {
    pub(super) fn new(unknown: Unknown) -> Self {
        Self {
            unknown,
            optional: &[],
            found: Vec::new(),
        }
    }

    pub(super) fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        if value.is_null() {
            self.error(at, "is null: give it a value, or remove it");
            return;
        }
        if schema["x-kubernetes-int-or-string"] == true {
            self.int_or_string(schema, value, at);
            return;
        }
        match schema["type"].as_str() {
            Some("object") => self.object(schema, value, at),
            Some("array") => self.array(schema, value, at),
            Some("string") => self.string(schema, value, at),
            Some("integer") => self.integer(schema, value, at),
            Some("number") => self.number(schema, value, at),
            Some("boolean") if !value.is_boolean() => self.wrong_type("true or false", value, at),
            _ => {}
        }
    }

    fn object(&mut self, schema: &Value, value: &Value, at: &str) {
        let Value::Object(object) = value else {
            return self.wrong_type("an object", value, at);
        };
        let none = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        for (name, inner) in object {
            let member = path::member(at, name);
            if let Some(property) = properties.get(name) {
                self.check(property, inner, &member);
            } else if schema["additionalProperties"].is_object() {
                self.check(&schema["additionalProperties"], inner, &member);
            } else if schema["x-kubernetes-preserve-unknown-fields"] != true {
                self.unknown_field(properties, name, &member);
            }
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            let Some(name) = name.as_str() else { continue };
            if !object.contains_key(name) && !self.optional.contains(&name) {
                let hint = properties.get(name).map(expectation).unwrap_or_default();
                self.error(&path::member(at, name), &format!("is required{hint}"));
            }
        }
        if let Some(most) = schema["maxProperties"].as_u64()
            && object.len() as u64 > most
        {
            self.error(
                at,
                &format!("has {} entries, at most {most} are allowed", object.len()),
            );
        }
    }

    fn array(&mut self, schema: &Value, value: &Value, at: &str) {
        let Value::Array(items) = value else {
            return self.wrong_type("a list", value, at);
        };
        let count = items.len() as u64;
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
            self.error(
                at,
                &format!("has {count} items, at most {most} are allowed"),
            );
        }
        if let Some(least) = schema["minItems"].as_u64().filter(|least| count < *least) {
            self.error(
                at,
                &format!("has {count} items, at least {least} must be there"),
            );
        }
        for (position, item) in items.iter().enumerate() {
            self.check(&schema["items"], item, &path::index(at, position));
        }
        self.duplicates(schema, items, at);
    }

    fn duplicates(&mut self, schema: &Value, items: &[Value], at: &str) {
        let keys: Vec<&str> = match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Vec::new(),
            Some("map") => schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect(),
            _ => return,
        };
        let mut seen: HashMap<String, usize> = HashMap::new();
        for (position, item) in items.iter().enumerate() {
            let identity = if keys.is_empty() {
                item.to_string()
            } else {
                let parts: Vec<_> = keys.iter().map(|key| item[*key].to_string()).collect();
                parts.join(", ")
            };
            if let Some(first) = seen.insert(identity.clone(), position) {
                self.error(
                    &path::index(at, position),
                    &format!("{identity} is there already, in item {first}: remove one"),
                );
            }
        }
    }

    fn string(&mut self, schema: &Value, value: &Value, at: &str) {
        let Value::String(text) = value else {
            return self.wrong_type("a text", value, at);
        };
        let choices: Vec<&str> = schema["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if !choices.is_empty() && !choices.contains(&text.as_str()) {
            let mut message = format!("\"{text}\" is not one of {}", choices.join(", "));
            if let Some(meant) = suggest::closest(text, choices.iter().copied()) {
                let _ = write!(message, "; did you mean {meant}?");
            }
            return self.error(at, &message);
        }
        self.text(schema, text, at);
    }

    /// Length and pattern of a text.
    fn text(&mut self, schema: &Value, text: &str, at: &str) {
        let length = text.chars().count() as u64;
        if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
            self.error(
                at,
                &format!("has {length} characters, at most {most} are allowed"),
            );
        }
        if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
            let message = if length == 0 {
                "is empty".to_owned()
            } else {
                format!("has {length} characters, at least {least} must be there")
            };
            return self.error(at, &message);
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && !matches(pattern, text)
        {
            self.error(at, &format!("\"{text}\" does not match {pattern}"));
        }
    }

    fn int_or_string(&mut self, schema: &Value, value: &Value, at: &str) {
        match value {
            Value::String(text) => self.text(schema, text, at),
            Value::Number(number) if number.is_i64() || number.is_u64() => {}
            _ => self.wrong_type("a text or a whole number", value, at),
        }
    }

    fn integer(&mut self, schema: &Value, value: &Value, at: &str) {
        let Some(number) = value.as_i64() else {
            return self.wrong_type("a whole number", value, at);
        };
        let (mut least, mut most) = (schema["minimum"].as_i64(), schema["maximum"].as_i64());
        if schema["format"] == "int32" {
            least = least.or(Some(i64::from(i32::MIN)));
            most = most.or(Some(i64::from(i32::MAX)));
        }
        if let Some(least) = least.filter(|least| number < *least) {
            self.error(at, &format!("is {number}, must be at least {least}"));
        }
        if let Some(most) = most.filter(|most| number > *most) {
            self.error(at, &format!("is {number}, must be at most {most}"));
        }
    }

    fn number(&mut self, schema: &Value, value: &Value, at: &str) {
        let Some(number) = value.as_f64() else {
            return self.wrong_type("a number", value, at);
        };
        if let Some(least) = schema["minimum"].as_f64().filter(|least| number < *least) {
            self.error(at, &format!("is {number}, must be at least {least}"));
        }
        if let Some(most) = schema["maximum"].as_f64().filter(|most| number > *most) {
            self.error(at, &format!("is {number}, must be at most {most}"));
        }
    }

    fn unknown_field(&mut self, known: &Map<String, Value>, name: &str, at: &str) {
        let mut message = "unknown field".to_owned();
        if let Some(meant) = suggest::closest(name, known.keys().map(String::as_str)) {
            let _ = write!(message, "; did you mean {meant}?");
        } else if !known.is_empty() && known.len() <= 12 {
            let names: Vec<_> = known.keys().map(String::as_str).collect();
            let _ = write!(message, "; known here: {}", names.join(", "));
        }
        match self.unknown {
            Unknown::Refused => self.error(at, &message),
            Unknown::Suspicious => self.found.push(Violation::warning(at, message)),
        }
    }

    fn wrong_type(&mut self, wanted: &str, value: &Value, at: &str) {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::String(text) => format!("the text \"{text}\""),
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
        };
        let hint = match value {
            Value::Bool(_) | Value::Number(_) if wanted.starts_with("a text") => {
                ": put it in quotes"
            }
            Value::String(text) if text.parse::<f64>().is_ok() && wanted.ends_with("number") => {
                ": remove the quotes"
            }
            Value::String(text) if text.parse::<bool>().is_ok() && wanted == "true or false" => {
                ": remove the quotes"
            }
            _ => "",
        };
        self.error(at, &format!("must be {wanted}, is {found}{hint}"));
    }

    fn error(&mut self, at: &str, message: &str) {
        self.found.push(Violation::error(at, message));
    }
}

/// What a missing field wants, from its schema.
fn expectation(schema: &Value) -> String {
    match schema["description"].as_str() {
        Some(description) => {
            let sentence = description.split(". ").next().unwrap_or_default();
            format!(": {}", sentence.trim_end_matches('.'))
        }
        None => String::new(),
    }
}

/// Patterns are compiled once. One that does not compile matches nothing; a test compiles them all.
fn matches(pattern: &str, text: &str) -> bool {
    static COMPILED: Mutex<Option<HashMap<String, Option<Regex>>>> = Mutex::new(None);
    let mut compiled = COMPILED.lock();
    compiled
        .get_or_insert_default()
        .entry(pattern.to_owned())
        .or_insert_with(|| Regex::new(pattern).ok())
        .as_ref()
        .is_some_and(|regex| regex.is_match(text))
}
