//! From the messages of a chat to its prompt.

use std::sync::Arc;

use rollout_tokenizer::{ChatTemplateInput, sglang_tools};
use serde_json::{Map, Value};

use super::request::ChatRequest;
use crate::http::App;
use crate::http::openai::BAD_REQUEST;
use crate::http::reply::ApiError;

impl ChatRequest {
    /// Prompt ids: given, or rendered from the messages.
    pub(super) fn prompt(&self, app: &App) -> Result<Arc<[u32]>, ApiError> {
        if let Some(ids) = self.prompt_ids() {
            // what no vocabulary can have becomes what none has
            let ids = ids
                .into_iter()
                .map(|id| u32::try_from(id).unwrap_or(u32::MAX));
            return Ok(ids.collect());
        }
        self.check_calls()?;
        let kwargs = self
            .get("chat_template_kwargs")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let with_tools = self
            .get("tool_choice")
            .is_none_or(|choice| choice != "none");
        let tools = self.get("tools").filter(|_| with_tools);
        let of_template = |message| ApiError::OpenAi(message, BAD_REQUEST);
        {
            let (messages, begun) = self.rendered_messages();
            let text = render(app, &Value::from(messages), tools, &kwargs).map_err(of_template)?;
            let text = text + &begun.unwrap_or_default();
            app.tokenizer
                .encode(&text)
                .map(Into::into)
                .map_err(|error| of_template(error.to_string()))
        }
    }

    /// The first part of a message that is no text.
    pub(super) fn unsupported_content(&self) -> Option<&str> {
        let parts = self
            .messages()
            .iter()
            .filter_map(|message| message["content"].as_array())
            .flatten();
        parts
            .filter_map(|part| part["type"].as_str())
            .find(|kind| *kind != "text")
    }

    /// The messages as the template sees them, and the text that continues the last one. An assistant message at the end is
    /// continued when that is asked for, else taken for a user's.
    fn rendered_messages(&self) -> (Vec<Value>, Option<String>) {
        let mut messages = self.messages().to_vec();
        let Some(last) = messages
            .last_mut()
            .filter(|last| last["role"] == "assistant")
        else {
            return (messages, None);
        };
        if self.flag("continue_final_message") {
            let begun = last["content"].as_str().unwrap_or_default().to_owned();
            messages.pop();
            return (messages, Some(begun));
        }
        if last["tool_calls"].as_array().is_none_or(Vec::is_empty) {
            last["role"] = "user".into();
        }
        (messages, None)
    }

    /// Arguments of earlier calls are JSON objects in a text.
    fn check_calls(&self) -> Result<(), ApiError> {
        let calls = self
            .messages()
            .iter()
            .filter(|message| message["role"] == "assistant")
            .filter_map(|message| message["tool_calls"].as_array())
            .flatten();
        for call in calls {
            let Some(arguments) = call["function"]["arguments"].as_str() else {
                continue;
            };
            let problem = match serde_json::from_str::<Value>(arguments) {
                Ok(Value::Object(_)) => continue,
                Ok(_) => "a JSON object",
                Err(_) => "valid JSON",
            };
            let message = format!("Assistant tool call function.arguments must be {problem}.");
            return Err(ApiError::OpenAi(message, BAD_REQUEST));
        }
        Ok(())
    }
}

/// Renders messages to text.
pub(in crate::http) fn render(
    app: &App,
    messages: &Value,
    tools: Option<&Value>,
    kwargs: &Map<String, Value>,
) -> Result<String, String> {
    let rendered = sglang_tools(tools).and_then(|tools| {
        let input = ChatTemplateInput {
            messages,
            tools: tools.as_ref(),
            add_generation_prompt: true,
            kwargs,
        };
        app.tokenizer.apply_chat_template(&input)
    });
    rendered.map_err(|error| error.to_string())
}
