//! Prompts as token ids, read without a detour, since they are long.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, SeqAccess, Visitor};

/// Token ids, or lists of them.
#[derive(Debug)]
pub(super) enum TokenInputs {
    One(Vec<u32>),
    Batch(Vec<Vec<u32>>),
}

/// A token id. What no vocabulary can have becomes the highest number, which none has either.
struct Id(u32);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnId;

        impl Visitor<'_> for AnId {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token id")
            }

            fn visit_u64<E>(self, id: u64) -> Result<Id, E> {
                Ok(Id(u32::try_from(id).unwrap_or(u32::MAX)))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Id, E> {
                Ok(Id(u32::MAX))
            }
        }

        deserializer.deserialize_u64(AnId)
    }
}

impl<'de> Deserialize<'de> for TokenInputs {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Prompts)
    }
}

struct Prompts;

#[derive(Deserialize)]
#[serde(untagged)]
enum First {
    Id(Id),
    Ids(Vec<Id>),
}

impl<'de> Visitor<'de> for Prompts {
    type Value = TokenInputs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of token ids, or a list of such lists")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<TokenInputs, A::Error> {
        match list.next_element::<First>()? {
            None => Ok(TokenInputs::One(Vec::new())),
            Some(First::Id(first)) => {
                let mut ids = vec![first.0];
                while let Some(id) = list.next_element::<Id>()? {
                    ids.push(id.0);
                }
                Ok(TokenInputs::One(ids))
            }
            Some(First::Ids(first)) => {
                let numbers = |ids: Vec<Id>| ids.into_iter().map(|id| id.0).collect();
                let mut lists = vec![numbers(first)];
                while let Some(ids) = list.next_element()? {
                    lists.push(numbers(ids));
                }
                Ok(TokenInputs::Batch(lists))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_lists_of_ids_are_read() {
        let read = |json: &str| serde_json::from_str::<TokenInputs>(json).unwrap();
        assert!(matches!(read("[]"), TokenInputs::One(ids) if ids.is_empty()));
        assert!(
            matches!(read("[1, -1, 4294967296]"), TokenInputs::One(ids) if ids == [1, u32::MAX, u32::MAX])
        );
        assert!(
            matches!(read("[[1], []]"), TokenInputs::Batch(lists) if lists == [vec![1], vec![]])
        );
        for wrong in ["[1, 1.5]", "[\"1\"]", "[true]", "[[1], 2]", "{}"] {
            assert!(
                serde_json::from_str::<TokenInputs>(wrong).is_err(),
                "{wrong}"
            );
        }
    }
}
