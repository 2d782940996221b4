//! Where a value is in the line that it was read from.
//!
//! The JSON parser says it: a raw value is a part of the text that was parsed. Only rows that cannot be used are read this second time.

use std::collections::HashMap;
use std::fmt;

use serde_json::value::RawValue;

/// The way to a value inside a row, displayed as in `prompt[0].role`; the empty way is the row itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Place(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Key(String),
    Item(usize),
}

impl Place {
    /// The row.
    pub(super) fn row() -> Self {
        Self::default()
    }

    /// A member of the row.
    pub(super) fn of(key: &str) -> Self {
        Self::row().key(key)
    }

    /// A member of the object at this place.
    pub(super) fn key(mut self, key: &str) -> Self {
        self.0.push(Part::Key(key.to_owned()));
        self
    }

    /// An item of the list at this place.
    pub(super) fn item(mut self, position: usize) -> Self {
        self.0.push(Part::Item(position));
        self
    }

    /// The column, in bytes from 1, where the value starts; of the closest one around it that is there. `None`: the line is not JSON.
    pub(super) fn column(&self, line: &str) -> Option<usize> {
        let mut value: &RawValue = serde_json::from_str(line).ok()?;
        for part in &self.0 {
            match part.inside(value) {
                Some(inner) => value = inner,
                None => break,
            }
        }
        let before = value.get().as_ptr().addr() - line.as_ptr().addr();
        Some(before + 1)
    }
}

impl Part {
    fn inside<'a>(&self, value: &'a RawValue) -> Option<&'a RawValue> {
        match self {
            Self::Key(key) => {
                // Rows with a key that is there twice do not come here.
                let members: HashMap<String, &RawValue> = serde_json::from_str(value.get()).ok()?;
                members.get(key).copied()
            }
            Self::Item(position) => {
                let items: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
                items.get(*position).copied()
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, part) in self.0.iter().enumerate() {
            match part {
                Part::Key(key) if position == 0 => f.write_str(key)?,
                Part::Key(key) => write!(f, ".{key}")?,
                Part::Item(item) => write!(f, "[{item}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_column_is_where_the_value_starts() {
        let line = r#"  {"a" :  [1, {"b":"ä", "c" : null}], "a\u0062": true, "d": 2}  "#;
        let at = |place: Place| &line[place.column(line).expect("JSON") - 1..];
        assert!(at(Place::row()).starts_with(r#"{"a""#));
        assert!(at(Place::of("a")).starts_with("[1"));
        assert!(at(Place::of("a").item(1)).starts_with(r#"{"b""#));
        assert!(at(Place::of("a").item(1).key("c")).starts_with("null"));
        assert!(at(Place::of("ab")).starts_with("true"));
        assert!(at(Place::of("d")).starts_with("2}"));
    }

    #[test]
    fn what_is_not_there_is_where_it_should_be() {
        let line = r#"{"a": [{"b": "text"}]}"#;
        let at = |place: Place| place.column(line).expect("JSON");
        assert_eq!(at(Place::of("z")), at(Place::row()));
        assert_eq!(at(Place::of("a").item(7)), at(Place::of("a")));
        let message = Place::of("a").item(0);
        assert_eq!(at(message.clone().key("role")), at(message.clone()));
        let text = message.key("b");
        assert_eq!(at(text.clone().item(0)), at(text), "inside of a text");
    }

    #[test]
    fn a_place_reads_like_a_field() {
        assert_eq!(
            Place::of("prompt").item(2).key("role").to_string(),
            "prompt[2].role"
        );
        assert_eq!(Place::row().to_string(), "");
    }

    /// A value, and a way into it.
    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
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

    /// Every place in a value, with what is there.
    fn places(at: Place, value: &Value, found: &mut Vec<(Place, Value)>) {
        match value {
            Value::Array(items) => {
                for (position, item) in items.iter().enumerate() {
                    places(at.clone().item(position), item, found);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    places(at.clone().key(key), member, found);
                }
            }
            _ => {}
        }
        found.push((at, value.clone()));
    }

    proptest! {
        #[test]
        fn the_value_at_its_column_is_the_value(value in values(), pretty in any::<bool>()) {
            let mut line = if pretty { format!("{value:#}") } else { value.to_string() };
            line = line.replace('\n', "\t");
            let mut found = Vec::new();
            places(Place::row(), &value, &mut found);
            for (place, expected) in found {
                let column = place.column(&line).expect("JSON");
                let mut rest = serde_json::Deserializer::from_str(&line[column - 1..]).into_iter::<Value>();
                prop_assert_eq!(rest.next().expect("a value").expect("JSON"), expected, "{}", place);
            }
        }
    }
}
