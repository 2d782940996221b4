//! `continue_final_message`: a prompt that ends inside of the last message.
//!
//! As in `transformers`, the message gets a tag at its end, and what the template wrote from the tag on is cut off.

use std::sync::Arc;

use super::text;
use crate::TokenizerError;
use crate::json::Json;

const FIELD: &str = "content";
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Messages whose last one has the tag.
pub(super) struct Continuation {
    pub(super) messages: Vec<Json>,
    continued: Arc<str>,
}

impl Continuation {
    pub(super) fn new(messages: &[Json], template: &str) -> Result<Self, TokenizerError> {
        let refuse = |problem: &str| TokenizerError::Continue(problem.into());
        let mut messages = messages.to_vec();
        let Some(Json::Object(last)) = messages.last_mut() else {
            return Err(refuse("list index out of range"));
        };
        let content = match last.get_mut(FIELD) {
            None | Some(Json::Null) => {
                return Err(refuse(
                    "continue_final_message is set but the final message has no \"content\" to continue!",
                ));
            }
            Some(content) => content,
        };
        if !template.contains(FIELD) {
            return Err(refuse(
                "continue_final_message is set to \"content\" but this is not an accepted field in the chat_template",
            ));
        }
        let text = match content {
            Json::Array(parts) => parts
                .iter_mut()
                .rev()
                .find_map(|part| match part {
                    Json::Object(part) => part.get_mut("text"),
                    _ => None,
                })
                .ok_or_else(|| {
                    refuse("continue_final_message is set but we could not find any text to continue in the final message!")
                })?,
            other => other,
        };
        let Json::String(text) = text else {
            return Err(refuse("the text of the final message is no string"));
        };
        let continued = Arc::clone(text);
        *text = format!("{continued}{TAG}").into();
        Ok(Self {
            messages,
            continued,
        })
    }

    pub(super) fn cut(&self, mut rendered: String) -> Result<String, TokenizerError> {
        let continued = text::strip(&self.continued);
        let tag = TAG.trim_end();
        let found = rendered.rfind(tag).filter(|_| rendered.contains(continued));
        let Some(place) = found else {
            return Err(TokenizerError::Continue(format!(
                "continue_final_message is set but the final message does not appear in the chat after applying the chat template! This can happen if the chat template deletes portions of the final message. Please verify the chat template and final message in your chat to ensure they are compatible.Final message to continue: {continued}\nRendered chat:\n{rendered}"
            )));
        };
        let kept_spacing = rendered[place..].starts_with(TAG);
        rendered.truncate(place);
        if !kept_spacing {
            rendered.truncate(text::strip_end(&rendered).len());
        }
        Ok(rendered)
    }
}
