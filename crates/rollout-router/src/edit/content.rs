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

enum Refusal {
    Json(JsonError),
    Other(ApiError),
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

/// Counts the messages.
///
/// # Errors
/// Not a list of messages, or a message with an image, audio or video.
pub(crate) fn count_text_messages(messages: &str) -> Result<usize, ApiError> {
    let mut cursor = Cursor::new(messages);
    if !matches!(cursor.kind(), Ok(Kind::Array)) {
        return Err(ApiError::BadRequest("messages must be a list".to_owned()));
    }
    let mut count = 0;
    let walked = cursor.array::<Refusal>(|index, message| {
        count = index + 1;
        if message.kind()? != Kind::Object {
            let text = format!("messages[{index}] must be an object");
            return Err(Refusal::Other(ApiError::BadRequest(text)));
        }
        message.object::<Refusal>(|key, value| {
            if key.name == "content" && value.kind()? == Kind::Array {
                value.array::<Refusal>(|_, part| check_part(index, part))
            } else {
                value.skip()?;
                Ok(())
            }
        })
    });
    match walked {
        Ok(()) => Ok(count),
        Err(Refusal::Json(error)) => Err(invalid_json(&error)),
        Err(Refusal::Other(error)) => Err(error),
    }
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
                let text = format!(
                    "messages[{message}] has a content part of type {kind}: sessions record text only, images, audio and video are refused"
                );
                return Err(Refusal::Other(ApiError::BadRequest(text)));
            }
            return Ok(());
        }
        value.skip()?;
        Ok(())
    })
}
