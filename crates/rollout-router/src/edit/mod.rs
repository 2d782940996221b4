//! Requests, edited as bytes: the router changes the keys that it owns and no other byte.

pub(crate) mod chat;
pub(crate) mod content;
pub(crate) mod generate;
pub(crate) mod rid;
pub(crate) mod sampling;

use rollout_session::json::edit::{Field, Fields};
use rollout_session::json::{Cursor, JsonError, Key};

use content::Refusal;

use crate::error::ApiError;

/// A request body as text with its top-level fields.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) text: &'a str,
    pub(crate) fields: Fields,
}

impl<'a> Request<'a> {
    /// Reads a body; an empty one is an empty object.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, ApiError> {
        Self::read_with(body, |_, value| Ok::<_, Refusal>(value.skip()?))
    }

    /// The same, with a look at the values on the way.
    pub(crate) fn read_with(
        body: &'a [u8],
        each: impl FnMut(&Key<'a>, &mut Cursor<'a>) -> Result<(), Refusal>,
    ) -> Result<Self, ApiError> {
        let text = std::str::from_utf8(body).map_err(|error| {
            invalid_json(&JsonError {
                expected: "UTF-8",
                offset: error.valid_up_to(),
            })
        })?;
        let text = if text.is_empty() { "{}" } else { text };
        let fields = Fields::read_with(text, each)?;
        Ok(Self { text, fields })
    }

    pub(crate) fn value(&self, field: &Field) -> &'a str {
        self.text.get(field.value.clone()).unwrap_or_default()
    }

    /// The value of a key, unless it is missing or null.
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        let value = self.value(self.fields.get(key)?);
        (value != "null").then_some(value)
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.get(key) == Some("true")
    }

    /// A key that is true or false; false when it is missing or null.
    pub(crate) fn flag(&self, key: &str) -> Result<bool, ApiError> {
        match self.get(key) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::BadRequest(format!("{key} must be true or false"))),
        }
    }

    /// An integer, if the key has one.
    pub(crate) fn integer(&self, key: &str) -> Option<i64> {
        self.get(key)?.parse().ok()
    }
}

pub(crate) fn invalid_json(error: &JsonError) -> ApiError {
    ApiError::BadRequest(format!("invalid JSON body: {error}"))
}
