//! A look at the messages of a chat request: how many there are, and that they are text.

use rollout_session::json::{Cursor, JsonError, Kind};

use crate::edit::invalid_json;
use crate::error::ApiError;

/// Content that would become tokens that are not text.
const MEDIA: [&str; 9] = [
    "image",
    "image_url",
    "input_image",
    "audio",
    "audio_url",
    "input_audio",
    "video",
    "video_url",
    "file",
];

/// Why a request is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    Json(JsonError),
    Other(ApiError),
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Json(error) => invalid_json(&error),
            Refusal::Other(error) => error,
        }
    }
}

fn refuse<T>(text: String) -> Result<T, Refusal> {
    Err(Refusal::Other(ApiError::BadRequest(text)))
}

/// Reads the messages and counts them.
///
/// # Errors
/// Not a list of messages, or a message with an image, audio or video.
pub(crate) fn count_text_messages(messages: &mut Cursor<'_>) -> Result<usize, Refusal> {
    if messages.kind()? != Kind::Array {
        return refuse("messages must be a list".to_owned());
    }
    let mut count = 0;
    messages.array::<Refusal>(|index, message| {
        count = index + 1;
        if message.kind()? != Kind::Object {
            return refuse(format!("messages[{index}] must be an object"));
        }
        message.object::<Refusal>(|key, value| {
            if key.name == "content" && value.kind()? == Kind::Array {
                value.array::<Refusal>(|_, part| check_part(index, part))
            } else {
                Ok(value.skip()?)
            }
        })
    })?;
    Ok(count)
}

fn check_part(message: usize, part: &mut Cursor<'_>) -> Result<(), Refusal> {
    if part.kind()? != Kind::Object {
        part.skip()?;
        return Ok(());
    }
    part.object::<Refusal>(|key, value| {
        if key.name == "type" && value.kind()? == Kind::String {
            let kind = value.string()?;
            if MEDIA.contains(&kind.as_ref()) {
                return refuse(format!(
                    "messages[{message}] has a content part of type {kind}: sessions record text only, images, audio and video are refused"
                ));
            }
            return Ok(());
        }
        value.skip()?;
        Ok(())
    })
}
