//! JSON in which no object has a key twice: of two values one would be lost without a word. Pure.
//!
//! Reads to the same [`Value`] as `serde_json` does, in one pass and with one look-up per key, as there.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

/// Why a text is not read.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is not JSON.
    Json(serde_json::Error),
    /// An object has a key a second time.
    Twice {
        /// The key.
        key: String,
        /// Where it stands for the second time, in bytes from 1.
        column: usize,
    },
}

/// Reads a text of one line.
pub(super) fn parse(text: &str) -> Result<Value, Fault> {
    let twice = Cell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = Unique(&twice)
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    read.map_err(|error| match twice.take() {
        Some(key) => Fault::Twice {
            key,
            column: start_of_key(text, error.column()),
        },
        None => Fault::Json(error),
    })
}

/// Column of the quote that opens the key which the reader has just read: before `read` bytes, without the white space after it.
fn start_of_key(text: &str, read: usize) -> usize {
    let bytes = text.as_bytes();
    let before = bytes.get(..read).unwrap_or(bytes);
    let quotes = before.iter().enumerate().rev().filter(|(at, byte)| {
        let escapes = before[..*at]
            .iter()
            .rev()
            .take_while(|byte| **byte == b'\\');
        **byte == b'"' && escapes.count() % 2 == 0
    });
    // The one that closes it, and the one that opens it.
    quotes.map(|(at, _)| at + 1).nth(1).unwrap_or(1)
}

/// Reads a value; notes the key that is there twice.
#[derive(Clone, Copy)]
struct Unique<'a>(&'a Cell<Option<String>>);

impl<'de> DeserializeSeed<'de> for Unique<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any valid JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            match object.entry(key) {
                Entry::Vacant(free) => {
                    free.insert(members.next_value_seed(self)?);
                }
                Entry::Occupied(taken) => {
                    self.0.set(Some(taken.key().clone()));
                    return Err(A::Error::custom("a key is there twice"));
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The key that is there twice, and the text from its second place on.
    fn twice(text: &str) -> (String, &str) {
        match parse(text) {
            Err(Fault::Twice { key, column }) => (key, &text[column - 1..]),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_key_that_is_there_twice_is_found_at_any_depth() {
        for (text, key, rest) in [
            (r#"{"a": 1, "b": 2, "a" : 3}"#, "a", r#""a" : 3}"#),
            (
                r#"{"é": {"x": [1, {"y": 1, "y": 2}]}}"#,
                "y",
                r#""y": 2}]}}"#,
            ),
            (
                r#"{"a": "\"a\"", "\u0061"   : null, "z": "a"}"#,
                "a",
                r#""\u0061"   : null, "z": "a"}"#,
            ),
            (r#"{"\"": 1, "\"":2}"#, "\"", r#""\"":2}"#),
            (r#"{"\\": 1, "\\":2}"#, "\\", r#""\\":2}"#),
            (r#"{"": 1,"":2}"#, "", r#""":2}"#),
        ] {
            assert_eq!(twice(text), (key.to_owned(), rest));
        }
    }

    #[test]
    fn the_same_key_in_two_objects_is_fine_and_a_text_goes_to_its_end() {
        let text = r#"[{"a": {"a": 1}}, {"a": 2}]"#;
        assert_eq!(
            parse(text).unwrap(),
            serde_json::from_str::<Value>(text).unwrap()
        );
        for bad in ["{} x", "{\"a\": 1", "", "{\"a\": 1, \"a\"", "[1e999]"] {
            let expected = serde_json::from_str::<Value>(bad).map_err(|error| error.to_string());
            match parse(bad) {
                Err(Fault::Json(error)) => assert_eq!(Err(error.to_string()), expected),
                Err(Fault::Twice { .. }) => assert!(bad.ends_with("\"a\""), "{bad}"),
                Ok(value) => panic!("{bad}: {value}"),
            }
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("\\PC{0,3}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_json_reads(value in values()) {
            let text = value.to_string();
            prop_assert_eq!(parse(&text).unwrap(), serde_json::from_str::<Value>(&text).unwrap());
        }
    }
}
