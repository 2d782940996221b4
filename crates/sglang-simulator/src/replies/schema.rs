//! Texts that a grammar forces: JSON for a schema, and calls of tools.
//!
//! Simulated: types, properties, `required`, enumerations, constants, the first of `anyOf`/`oneOf`, `allOf` of objects, `$ref` inside the schema,
//! bounds of lengths, items and numbers, `pattern`, `prefixItems`. What `XGrammar` would ignore is refused in SGLang's words; the rest of JSON
//! Schema is ignored (formats, `patternProperties`, `additionalProperties`).

use std::sync::Arc;

use serde_json::{Map, Value};

use super::ForcedText;
use super::pattern::{self, Grammar};
use crate::numbers;
use crate::wire::{python, tool_calls};

/// A model with random weights does not close a string soon.
const STRING_CHARACTERS: std::ops::Range<usize> = 150..400;

/// Deeper than this, a schema gets nulls.
const DEEPEST: usize = 8;

/// Most elements of a list, and characters of a text, that a schema can demand.
const MOST_ITEMS: usize = 64;
const LONGEST_TEXT: usize = 10_000;

/// Keywords that `XGrammar` accepts and does not heed (`json_schema_validation.py` of SGLang 0.5.23).
const IGNORED_BY_XGRAMMAR: [&str; 11] = [
    "contains",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "multipleOf",
    "not",
    "then",
    "uniqueItems",
];

/// Formats of texts that `XGrammar` knows.
const FORMATS: [&str; 14] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "json-pointer",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];

impl ForcedText {
    /// JSON for a schema.
    pub(crate) fn of_schema(schema: &str) -> Result<Self, String> {
        let schema: Value = serde_json::from_str(schema).map_err(|error| error.to_string())?;
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return Err("Schema should be an object or bool".into());
        }
        check(&schema, "#", 0)?;
        Ok(Self(Arc::new(move |seed| {
            let writer = Writer { root: &schema };
            tool_calls::spaced(&writer.value(&schema, seed, 0))
        })))
    }

    /// A call of one of some tools (name and schema of the arguments).
    pub(crate) fn of_tools(tools: Vec<(String, Value)>) -> Self {
        Self(Arc::new(move |seed| {
            let (name, schema) = &tools[numbers::below(numbers::mix(seed, 0x7001), tools.len())];
            let writer = Writer { root: schema };
            tool_calls::render(name, &writer.value(schema, seed, 0))
        }))
    }
}

/// Refuses what `XGrammar` would ignore, and texts whose pattern is none.
fn check(schema: &Value, pointer: &str, depth: usize) -> Result<(), String> {
    let Some(fields) = schema.as_object().filter(|_| depth < 100) else {
        return Ok(());
    };
    let refuse = |reason: String| {
        Err(format!(
            "JSON Schema at {pointer} is not supported by xgrammar: {reason}"
        ))
    };
    let ignored: Vec<_> = IGNORED_BY_XGRAMMAR
        .into_iter()
        .filter(|keyword| fields.contains_key(*keyword))
        .collect();
    if !ignored.is_empty() {
        return refuse(format!(
            "keyword(s) {} would be ignored",
            ignored.join(", ")
        ));
    }
    if may_be_text(fields) {
        if let Some(format) = fields.get("format") {
            let known = format
                .as_str()
                .is_some_and(|format| FORMATS.contains(&format));
            if !known {
                let format = python::repr(format);
                return refuse(format!("string format {format} is not implemented"));
            }
        }
        let has = |name: &str| fields.contains_key(name);
        let groups = [
            ("format", has("format")),
            ("pattern", has("pattern")),
            ("minLength/maxLength", has("minLength") || has("maxLength")),
        ];
        let groups: Vec<_> = groups
            .iter()
            .filter(|group| group.1)
            .map(|group| group.0)
            .collect();
        if groups.len() > 1 {
            let groups = groups.join(", ");
            return refuse(format!("constraints {groups} cannot be enforced together"));
        }
        if let Some(pattern) = fields.get("pattern").and_then(Value::as_str) {
            pattern::of_regex(pattern)?;
        }
    }
    for name in ["additionalProperties", "items", "propertyNames"] {
        if let Some(inner) = fields.get(name) {
            check(inner, &format!("{pointer}/{name}"), depth + 1)?;
        }
    }
    for name in ["allOf", "anyOf", "oneOf", "prefixItems", "items"] {
        for (index, inner) in fields
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            check(inner, &format!("{pointer}/{name}/{index}"), depth + 1)?;
        }
    }
    for name in ["$defs", "definitions", "patternProperties", "properties"] {
        for (key, inner) in fields
            .get(name)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let key = key.replace('~', "~0").replace('/', "~1");
            check(inner, &format!("{pointer}/{name}/{key}"), depth + 1)?;
        }
    }
    Ok(())
}

fn may_be_text(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        Some(kind) => kind == "string",
    }
}

struct Writer<'a> {
    root: &'a Value,
}

impl Writer<'_> {
    /// A value that fits a schema, as far as the module's documentation says.
    fn value(&self, schema: &Value, seed: u64, depth: usize) -> Value {
        if depth > DEEPEST {
            return Value::Null;
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = target
                .strip_prefix('#')
                .and_then(|path| self.root.pointer(path));
            return target.map_or(Value::Null, |target| self.value(target, seed, depth + 1));
        }
        let choices = schema.get("enum").and_then(Value::as_array);
        if let Some(choices) = choices.filter(|choices| !choices.is_empty()) {
            return choices[numbers::below(seed, choices.len())].clone();
        }
        for union in ["anyOf", "oneOf"] {
            if let Some(first) = schema.get(union).and_then(|options| options.get(0)) {
                return self.value(first, seed, depth + 1);
            }
        }
        let kind = match schema.get("type") {
            Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
            kind => kind.and_then(Value::as_str),
        };
        match kind {
            Some("string") => Value::from(text(schema, seed)),
            Some("integer") => whole(schema, seed),
            Some("number") => number(schema, seed),
            Some("boolean") => Value::from(seed & 1 == 0),
            Some("array") => self.list(schema, seed, depth),
            Some("object") | None if is_object(schema, kind) => {
                Value::Object(self.fields(schema, seed, depth))
            }
            _ => Value::Null,
        }
    }

    fn list(&self, schema: &Value, seed: u64, depth: usize) -> Value {
        let first = schema.get("prefixItems").and_then(Value::as_array);
        let first = first.map_or(&[][..], Vec::as_slice);
        let (least, most) = bounds(schema, "minItems", "maxItems", MOST_ITEMS);
        let count = least.max(first.len()).max(1).min(most);
        let others = schema.get("items").unwrap_or(&Value::Null);
        let items = (0..count).map(|index| {
            let item = first.get(index).unwrap_or(others);
            self.value(item, numbers::mix(seed, index as u64 + 1), depth + 1)
        });
        Value::Array(items.collect())
    }

    fn fields(&self, schema: &Value, seed: u64, depth: usize) -> Map<String, Value> {
        let mut fields = Map::new();
        for part in schema
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if let Value::Object(part) = self.value(part, seed, depth + 1) {
                fields.extend(part);
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let seed = numbers::mix(seed, numbers::of_text(name));
            fields.insert(name.clone(), self.value(property, seed, depth + 1));
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            fields.entry(name).or_insert(Value::Null);
        }
        fields
    }
}

fn is_object(schema: &Value, kind: Option<&str>) -> bool {
    let has = |name: &str| schema.get(name).is_some();
    kind.is_some() || has("properties") || has("allOf")
}

/// Two bounds of a count, of which none is beyond `limit`.
fn bounds(schema: &Value, least: &str, most: &str, limit: usize) -> (usize, usize) {
    let bound = |name: &str| {
        let bound = schema.get(name).and_then(Value::as_u64)?;
        Some(usize::try_from(bound).unwrap_or(limit).min(limit))
    };
    let least = bound(least).unwrap_or(0);
    (least, bound(most).unwrap_or(limit).max(least))
}

fn text(schema: &Value, seed: u64) -> String {
    let pattern = schema.get("pattern").and_then(Value::as_str);
    if let Some(grammar) = pattern.and_then(|pattern| pattern::of_regex(pattern).ok()) {
        return Grammar::sample(&grammar, seed);
    }
    let (least, most) = bounds(schema, "minLength", "maxLength", LONGEST_TEXT);
    let count = STRING_CHARACTERS.start + numbers::below(seed, STRING_CHARACTERS.len());
    (0..count.clamp(least, most))
        .map(|i| {
            let letter = numbers::below(numbers::mix(seed, i as u64), 26);
            char::from(b'a' + u8::try_from(letter).unwrap_or(0))
        })
        .collect()
}

/// Bounds of a number, inclusive; a bound that excludes itself is a step of `step` further in.
fn limits(schema: &Value, step: f64) -> (f64, f64) {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let least = bound("minimum").or_else(|| Some(bound("exclusiveMinimum")? + step));
    let most = bound("maximum").or_else(|| Some(bound("exclusiveMaximum")? - step));
    match (least, most) {
        (Some(least), most) => (least, most.unwrap_or(least + 1000.0).max(least)),
        (None, Some(most)) => (most.min(0.0) - if most < 0.0 { 1000.0 } else { 0.0 }, most),
        (None, None) => (0.0, 999.0),
    }
}

fn whole(schema: &Value, seed: u64) -> Value {
    let (least, most) = limits(schema, 1.0);
    let (least, most) = (least.ceil(), most.floor());
    let value = (least + (numbers::unit(seed) * (most - least + 1.0)).floor()).min(most.max(least));
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction")]
    let value = value as i64;
    Value::from(value)
}

fn number(schema: &Value, seed: u64) -> Value {
    let (least, most) = limits(schema, 0.1);
    let tenths = ((least + numbers::unit(seed) * (most - least)) * 10.0).round() / 10.0;
    Value::from(tenths.clamp(least, most))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(schema: &Value, seed: u64) -> Value {
        Writer { root: schema }.value(schema, seed, 0)
    }

    #[test]
    fn a_value_has_the_properties_of_its_schema() {
        let schema = json!({"type": "object", "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": "boolean"}}}});
        let value = sample(&schema, 3);
        assert!(
            value["city"].is_string() && value["days"].is_u64() && value["tags"][0].is_boolean(),
            "{value}"
        );
        assert!(["C", "F"].contains(&value["unit"].as_str().unwrap()));
        assert_eq!(sample(&schema, 3), value);
    }

    #[test]
    fn bounds_are_kept() {
        let schema = json!({"$defs": {"grade": {"type": "integer", "minimum": 1, "maximum": 6}}, "type": "object", "required": ["note"],
            "properties": {
                "name": {"type": "string", "minLength": 2, "maxLength": 5}, "code": {"type": "string", "pattern": "^[A-Z]{3}$"},
                "grades": {"type": "array", "minItems": 2, "maxItems": 3, "items": {"$ref": "#/$defs/grade"}},
                "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1}, "debt": {"type": "integer", "maximum": -5}}});
        for seed in 0..50 {
            let value = sample(&schema, crate::numbers::scramble(seed));
            assert!(
                (2..=5).contains(&value["name"].as_str().unwrap().len()),
                "{value}"
            );
            let code = value["code"].as_str().unwrap();
            assert!(
                code.len() == 3 && code.chars().all(|c| c.is_ascii_uppercase()),
                "{value}"
            );
            let grades = value["grades"].as_array().unwrap();
            assert!((2..=3).contains(&grades.len()), "{value}");
            assert!(
                grades
                    .iter()
                    .all(|grade| (1..=6).contains(&grade.as_i64().unwrap())),
                "{value}"
            );
            let share = value["share"].as_f64().unwrap();
            assert!(share > 0.0 && share <= 1.0, "{value}");
            assert!(value["debt"].as_i64().unwrap() <= -5, "{value}");
            assert!(value["note"].is_null(), "{value}");
        }
    }

    #[test]
    fn what_xgrammar_would_ignore_is_refused() {
        for (schema, expected) in [
            (
                json!({"properties": {"a/b": {"type": "array", "uniqueItems": true}}}),
                "JSON Schema at #/properties/a~1b is not supported by xgrammar: keyword(s) uniqueItems would be ignored",
            ),
            (
                json!({"type": "string", "format": "colour"}),
                "JSON Schema at # is not supported by xgrammar: string format 'colour' is not implemented",
            ),
            (
                json!({"anyOf": [{"type": "string", "pattern": "a", "maxLength": 3}]}),
                "JSON Schema at #/anyOf/0 is not supported by xgrammar: constraints pattern, minLength/maxLength cannot be enforced together",
            ),
            (json!(5), "Schema should be an object or bool"),
            (
                json!({"type": "string", "pattern": "["}),
                "unclosed character class",
            ),
        ] {
            assert_eq!(
                ForcedText::of_schema(&schema.to_string()).unwrap_err(),
                expected
            );
        }
    }
}
