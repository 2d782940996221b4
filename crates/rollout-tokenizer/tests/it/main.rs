//! Tests of the tokenizer and its chat templates through the public interface.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bounds;
mod family;
mod ids;
mod loading;
mod messages;
mod renders;
mod template_builtin;
mod tools;

use rollout_tokenizer::{ChatTemplateInput, Tokenizer, TokenizerError};
use serde_json::{Map, Value};

/// Renders with nothing but messages and template arguments.
fn render(
    tokenizer: &Tokenizer,
    messages: &Value,
    kwargs: &Value,
    add_generation_prompt: bool,
) -> Result<String, TokenizerError> {
    let kwargs = kwargs.as_object().cloned().unwrap_or_else(Map::new);
    tokenizer.apply_chat_template(&ChatTemplateInput {
        messages,
        tools: None,
        add_generation_prompt,
        kwargs: &kwargs,
    })
}
