//! Where messages lie in a chat request and in its reply.

use std::ops::Range;

use crate::json::edit::Fields;
use crate::json::{Cursor, JsonError, Kind};

/// The messages of a request body, in order. None when the body has no list of messages.
///
/// # Errors
/// Malformed JSON, or not an object.
pub fn message_spans(body: &str) -> Result<Vec<Range<usize>>, JsonError> {
    let mut spans = Vec::new();
    let fields = Fields::read_with(body, |key, value| {
        if key.name == "messages" && value.kind()? == Kind::Array {
            spans.clear();
            value.array::<JsonError>(|_, message| {
                spans.push(message.span()?);
                Ok(())
            })
        } else {
            value.skip()
        }
    })?;
    let last = fields.get("messages").map(|field| field.value.clone());
    // Of a repeated key the last value counts, also when it is no list.
    let is_list = last.is_some_and(|span| body.as_bytes().get(span.start) == Some(&b'['));
    Ok(if is_list { spans } else { Vec::new() })
}

/// The assistant's message of a chat reply.
pub(crate) fn reply_message(body: &str) -> Option<Range<usize>> {
    let mut message = None;
    Cursor::new(body)
        .object::<JsonError>(|key, value| {
            if key.name != "choices" || value.kind()? != Kind::Array {
                return value.skip();
            }
            value.array::<JsonError>(|index, choice| {
                if index > 0 || choice.kind()? != Kind::Object {
                    return choice.skip();
                }
                choice.object::<JsonError>(|key, value| {
                    let span = value.span()?;
                    if key.name == "message" && body.as_bytes().get(span.start) == Some(&b'{') {
                        message = Some(span);
                    }
                    Ok(())
                })
            })
        })
        .ok()?;
    message
}

/// The `id` of a reply, or an empty text.
pub(crate) fn reply_id(body: &str) -> String {
    let mut id = String::new();
    let read = Cursor::new(body).object::<JsonError>(|key, value| {
        if key.name == "id" && value.kind()? == Kind::String {
            id = value.string()?.into_owned();
        } else {
            value.skip()?;
        }
        Ok(())
    });
    if read.is_err() {
        id.clear();
    }
    id
}
