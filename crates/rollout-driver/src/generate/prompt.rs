//! From a row's prompt to what `/generate` gets: token ids where there is a tokenizer, else the text.

use std::sync::Arc;

use rollout_tokenizer::{ChatTemplateInput, Tokenizer, TokenizerError};
use serde_json::{Map, Value, json};
use sglang_client::Prompt;

use crate::config::{DatasetSpec, TokenizerSource};
use crate::dataset::PromptRow;
use crate::error::DriverError;

/// Why a row has no prompt for `/generate`.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// Messages, and nothing to render them with.
    #[error(
        "the prompt is a list of messages: set dataset.applyChatTemplate and give the driver a tokenizer, or write the prompt as text"
    )]
    NoTokenizer,
    /// The template or the tokenizer refused it.
    #[error("the prompt cannot be tokenized: {0}")]
    Tokenizer(#[from] TokenizerError),
}

/// Makes prompts.
#[derive(Debug, Clone)]
pub struct PromptMaker {
    tokenizer: Option<Arc<Tokenizer>>,
    apply_chat_template: bool,
    kwargs: Map<String, Value>,
}

impl PromptMaker {
    /// Loads the tokenizer, if there is one.
    ///
    /// # Errors
    /// It cannot be loaded, or the chat template is asked for and there is none.
    pub fn new(
        source: Option<&TokenizerSource>,
        dataset: &DatasetSpec,
    ) -> Result<Self, DriverError> {
        let refuse = |problem: String| DriverError::Tokenizer { problem };
        let tokenizer = match source {
            None => None,
            Some(TokenizerSource::Builtin) => Some(Tokenizer::builtin()),
            Some(
                TokenizerSource::Directory(directory) | TokenizerSource::Fetched { directory, .. },
            ) => Some(Tokenizer::from_dir(directory)),
            Some(TokenizerSource::Engines(url)) => {
                return Err(DriverError::NoTokenizer {
                    problem: format!("its files were not fetched from {url}"),
                });
            }
        };
        let tokenizer = tokenizer
            .transpose()
            .map_err(|error| refuse(error.to_string()))?;
        if dataset.apply_chat_template
            && !tokenizer.as_ref().is_some_and(Tokenizer::has_chat_template)
        {
            return Err(refuse(
                "dataset.applyChatTemplate needs a tokenizer with a chat template".into(),
            ));
        }
        Ok(Self {
            tokenizer: tokenizer.map(Arc::new),
            apply_chat_template: dataset.apply_chat_template,
            kwargs: dataset.chat_template_kwargs.clone(),
        })
    }

    /// Renders the prompt of a row in place when the data set asks for it, and says what `/generate` gets. CPU work.
    ///
    /// # Errors
    /// See [`PromptError`].
    pub fn make(&self, row: &mut PromptRow) -> Result<Prompt, PromptError> {
        if self.apply_chat_template {
            let messages = match &row.prompt {
                Value::String(text) => json!([{"role": "user", "content": text}]),
                other => other.clone(),
            };
            row.prompt = Value::String(self.render(&messages, row.tools.as_ref())?);
        }
        match &row.prompt {
            Value::String(text) => self.encode(text),
            messages => {
                let text = self.render(messages, row.tools.as_ref())?;
                self.encode(&text)
            }
        }
    }

    fn render(&self, messages: &Value, tools: Option<&Value>) -> Result<String, PromptError> {
        let tokenizer = self.tokenizer.as_ref().ok_or(PromptError::NoTokenizer)?;
        Ok(tokenizer.apply_chat_template(&ChatTemplateInput {
            messages,
            tools,
            add_generation_prompt: true,
            kwargs: &self.kwargs,
        })?)
    }

    fn encode(&self, text: &str) -> Result<Prompt, PromptError> {
        let Some(tokenizer) = &self.tokenizer else {
            return Ok(Prompt::Text(text.to_owned()));
        };
        let ids = tokenizer.encode(text)?;
        Ok(Prompt::Ids(ids.into_iter().map(i64::from).collect()))
    }
}
