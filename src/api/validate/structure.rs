//! The structural half of a schema: types, required and unknown fields, enums, bounds, patterns, keys of lists.
//!
//! The same verdict as the API server's, in words for the person who wrote the file (see [`super::words`]). Rules in CEL are not looked at
//! here; `touched` says which of them cannot be answered.

use std::collections::HashMap;

use parking_lot::Mutex;
use regex::Regex;
use serde_json::{Map, Value};

use super::aliases;
use super::misplaced::{self, Home};
use super::suggest;
use super::touched::Touched;
use super::violation::Violation;
use super::words;
use crate::api::job::LOGPROBS_OF_THE_PROMPT;
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
    /// Schema of the whole object: where a field that is unknown in one place may have its home.
    pub(super) homes: Option<&'a Value>,
    pub(super) found: Vec<Violation>,
    /// Places that are not what their schema says.
    pub(super) touched: Touched,
}

impl<'a> Structure<'a> {
    pub(super) fn new(unknown: Unknown) -> Self {
        Self {
            unknown,
            optional: &[],
            homes: None,
            found: Vec::new(),
            touched: Touched::default(),
        }
    }

    /// A walk of an object of ours, which knows where each field belongs.
    pub(super) fn of(schema: &'a Value) -> Self {
        Self {
            homes: Some(schema),
            ..Self::new(Unknown::Refused)
        }
    }

    pub(super) fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        if value.is_null() {
            self.error(at, &words::null(schema, at));
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
            Some("boolean") if !value.is_boolean() => self.wrong_type(schema, value, at),
            _ => {}
        }
    }

    fn object(&mut self, schema: &Value, value: &Value, at: &str) {
        let Value::Object(object) = value else {
            return self.wrong_type(schema, value, at);
        };
        let none = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        let mut meant = Vec::new();
        for (name, inner) in object {
            let member = path::member(at, name);
            if let Some(property) = properties.get(name) {
                self.check(property, inner, &member);
            } else if schema["additionalProperties"].is_object() {
                self.check(&schema["additionalProperties"], inner, &member);
            } else if schema["x-kubernetes-preserve-unknown-fields"] != true {
                meant.extend(self.unknown_field(properties, name, object, at));
            }
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            let Some(name) = name.as_str() else { continue };
            let member = path::member(at, name);
            if meant.contains(&name) {
                // It is there under a name that was misspelled, which has been said.
                self.touched.value(&member);
            } else if !object.contains_key(name) && !self.optional.contains(&name) {
                let hint = properties.get(name).map(words::wanted).unwrap_or_default();
                self.error(&member, &format!("is required{hint}"));
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
            return self.wrong_type(schema, value, at);
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
            return self.wrong_type(schema, value, at);
        };
        let choices = words::choices(schema);
        if !choices.is_empty() && !choices.contains(&text.as_str()) {
            return self.error(at, &words::no_choice(text, &choices));
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
                "is empty: write a text".to_owned()
            } else {
                format!("has {length} characters, at least {least} must be there")
            };
            return self.error(at, &message);
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && !matches(pattern, text)
        {
            self.error(at, &words::no_match(text, pattern));
        }
    }

    fn int_or_string(&mut self, schema: &Value, value: &Value, at: &str) {
        match value {
            Value::String(text) => self.text(schema, text, at),
            Value::Number(number) if number.is_i64() || number.is_u64() => {}
            _ => self.wrong_type(schema, value, at),
        }
    }

    fn integer(&mut self, schema: &Value, value: &Value, at: &str) {
        let Some(number) = value.as_i64() else {
            return self.wrong_type(schema, value, at);
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
            return self.wrong_type(schema, value, at);
        };
        if let Some(least) = schema["minimum"].as_f64().filter(|least| number < *least) {
            self.error(at, &format!("is {number}, must be at least {least}"));
        }
        if let Some(most) = schema["maximum"].as_f64().filter(|most| number > *most) {
            self.error(at, &format!("is {number}, must be at most {most}"));
        }
    }

    /// Says that a field is unknown, and answers the one that was meant, if it has only been misspelled.
    fn unknown_field<'k>(
        &mut self,
        known: &'k Map<String, Value>,
        name: &str,
        object: &Map<String, Value>,
        at: &str,
    ) -> Option<&'k str> {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let member = path::member(at, name);
        let home = self
            .homes
            .and_then(|schema| misplaced::home(schema, at, name));
        let close = || suggest::closest(name, names.iter().copied());
        // A slip of the fingers first, then a field of another place, then what is only similar.
        let mut meant = suggest::same(name, &names).or_else(|| aliases::beside(at, name));
        let alias = self.homes.and_then(|_| aliases::field_of(name));
        let hint = if meant == Some("logprobStartLen") {
            // No spelling of it is taken: the reason at once.
            format!("; {LOGPROBS_OF_THE_PROMPT}")
        } else if let Some(same) = meant {
            format!("; write {same}")
        } else if let Some((key, value)) = name.split_once(':') {
            format!("; write {key}: {value}, with a space after the colon")
        } else if let Some(field) = alias {
            format!("; that is spec.{field} here")
        } else if let Some(home) = &home {
            format!("; {home}")
        } else if let Some(close) = close() {
            meant = Some(close);
            format!("; did you mean {close}?")
        } else if self.unknown == Unknown::Suspicious {
            String::new()
        } else if names.is_empty() {
            "; nothing can be set here: remove it".to_owned()
        } else if names.len() <= 12 {
            format!("; known here: {}", names.join(", "))
        } else {
            "; remove it".to_owned()
        };
        if let Some(Home { path, .. }) = home {
            self.touched.value(&path);
        }
        if let Some(field) = alias {
            self.touched.value(&format!("spec.{field}"));
        }
        self.touched.absent(at, object);
        let message = format!("unknown field{hint}");
        self.found.push(match self.unknown {
            Unknown::Refused => Violation::error(member, message),
            Unknown::Suspicious => Violation::warning(member, message),
        });
        meant.filter(|meant| !object.contains_key(*meant))
    }

    fn wrong_type(&mut self, schema: &Value, value: &Value, at: &str) {
        self.error(at, &words::wrong_type(schema, value, at));
    }

    fn error(&mut self, at: &str, message: &str) {
        self.touched.value(at);
        self.found.push(Violation::error(at, message));
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
