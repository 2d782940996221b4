//! Chat templates: which one applies, and rendering it in the set-up of `transformers`.
//!
//! The environment is that of `transformers.utils.chat_template_utils`: blocks trimmed and left-stripped, loop controls,
//! `raise_exception`, `strftime_now`, a `tojson` that is `json.dumps`, the special tokens by name. The `{% generation %}` block
//! of training templates renders as its content.

mod chat_template;
mod content_format;
mod continuation;
mod dialect;
mod environment;
mod filters;
mod messages;
mod methods;
mod strftime;
mod text;
mod tojson;
mod tools;
mod variables;

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Map, Value};

use crate::TokenizerError;
use crate::json::Json;
pub use chat_template::{ChatTemplate, RenderInput};
pub use tools::sglang_tools;

/// Where a template's `strftime_now` takes the time from.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// What a chat template is rendered with.
#[derive(Debug, Clone, Copy)]
pub struct ChatTemplateInput<'a> {
    /// OpenAI messages: an array of objects with `role` and `content`.
    pub messages: &'a Value,
    /// Tools as the template shall see them (see [`sglang_tools`]); an empty array counts as none.
    pub tools: Option<&'a Value>,
    /// Whether to end with the opening of an assistant message.
    pub add_generation_prompt: bool,
    /// Further variables (`chat_template_kwargs` of a request), such as `enable_thinking`.
    pub kwargs: &'a Map<String, Value>,
}

/// The templates of one tokenizer, compiled.
pub(crate) struct Templates {
    named: Vec<(String, ChatTemplate)>,
    named_tokens: Vec<(String, Json)>,
}

const DEFAULT: &str = "default";
const WITH_TOOLS: &str = "tool_use";

impl Templates {
    pub(crate) fn new(
        sources: Vec<(String, String)>,
        named_tokens: Vec<(String, String)>,
    ) -> Result<Self, TokenizerError> {
        let named = sources
            .into_iter()
            .map(|(name, source)| Ok((name, ChatTemplate::new(&source)?)))
            .collect::<Result<Vec<_>, TokenizerError>>()?;
        Ok(Self {
            named,
            named_tokens: named_tokens
                .into_iter()
                .map(|(name, token)| (name, Json::from(token.as_str())))
                .collect(),
        })
    }

    pub(crate) fn replaced(self, source: &str) -> Result<Self, TokenizerError> {
        let mut template = ChatTemplate::new(source)?;
        if let Some((_, old)) = self.named.first() {
            template = template.with_clock(old.clock());
        }
        Ok(Self {
            named: vec![(DEFAULT.into(), template)],
            named_tokens: self.named_tokens,
        })
    }

    pub(crate) fn set_clock(&mut self, clock: &Clock) {
        let named = std::mem::take(&mut self.named);
        self.named = named
            .into_iter()
            .map(|(name, template)| (name, template.with_clock(Arc::clone(clock))))
            .collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    pub(crate) fn render(&self, input: &ChatTemplateInput<'_>) -> Result<String, TokenizerError> {
        let Json::Array(messages) = Json::from(input.messages) else {
            return Err(TokenizerError::Messages {
                place: "messages".into(),
                problem: "must be an array".into(),
            });
        };
        let tools = input.tools.map(Json::from);
        let kwargs: Vec<(&str, Json)> = input
            .kwargs
            .iter()
            .map(|(name, value)| (name.as_str(), Json::from(value)))
            .collect();
        self.render_exact(&RenderInput {
            messages: &messages,
            tools: tools.as_ref(),
            add_generation_prompt: input.add_generation_prompt,
            continue_final_message: false,
            kwargs: &kwargs,
        })
    }

    /// The same for values that kept every digit. The special tokens are there by name; arguments of the caller override them.
    pub(crate) fn render_exact(&self, input: &RenderInput<'_>) -> Result<String, TokenizerError> {
        let tools = input.tools.filter(|tools| {
            !tools.is_null() && tools.as_array().is_none_or(|list| !list.is_empty())
        });
        let template = self.choose(tools.is_some())?;
        let messages = messages::normalized(input.messages, template.format())?;
        let tokens = self
            .named_tokens
            .iter()
            .map(|(name, token)| (name.as_str(), token.clone()));
        let kwargs: Vec<(&str, Json)> = tokens.chain(input.kwargs.iter().cloned()).collect();
        template.render(&RenderInput {
            messages: &messages,
            tools,
            kwargs: &kwargs,
            ..*input
        })
    }

    /// The template `tool_use` if there are tools and it exists, else `default`, else the only one.
    fn choose(&self, with_tools: bool) -> Result<&ChatTemplate, TokenizerError> {
        let named = |wanted: &str| self.named.iter().find(|(name, _)| name == wanted);
        let with_tools = with_tools.then(|| named(WITH_TOOLS)).flatten();
        with_tools
            .or_else(|| named(DEFAULT))
            .or_else(|| self.named.first().filter(|_| self.named.len() == 1))
            .map(|(_, template)| template)
            .ok_or(TokenizerError::NoChatTemplate)
    }
}
