//! Chat templates: which one applies, and rendering it in the set-up of `transformers`.
//!
//! The environment is that of `transformers.utils.chat_template_utils`: blocks trimmed and left-stripped, loop controls,
//! `raise_exception`, `strftime_now`, a `tojson` that is `json.dumps`, the special tokens by name. The `{% generation %}` block
//! of training templates renders as its content.

mod content_format;
mod environment;
mod json;
mod messages;
mod methods;
mod strftime;
mod tools;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use minijinja::value::Serde;
use minijinja::{Environment, Value as JinjaValue};
use serde_json::{Map, Value};

use crate::TokenizerError;
use content_format::ContentFormat;
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
    environment: Environment<'static>,
    formats: Vec<(String, ContentFormat)>,
    named_tokens: Vec<(String, String)>,
    clock: Clock,
}

const DEFAULT: &str = "default";
const WITH_TOOLS: &str = "tool_use";

impl Templates {
    pub(crate) fn new(
        sources: Vec<(String, String)>,
        named_tokens: Vec<(String, String)>,
    ) -> Result<Self, TokenizerError> {
        let mut environment = environment::chat().map_err(syntax)?;
        let mut formats = Vec::new();
        for (name, source) in sources {
            formats.push((name.clone(), ContentFormat::detect(&source)));
            environment
                .add_template_owned(name, environment::without_generation_tags(&source))
                .map_err(syntax)?;
        }
        Ok(Self {
            environment,
            formats,
            named_tokens,
            clock: Arc::new(SystemTime::now),
        })
    }

    pub(crate) fn replaced(self, source: &str) -> Result<Self, TokenizerError> {
        let mut templates = Self::new(vec![(DEFAULT.into(), source.into())], self.named_tokens)?;
        templates.clock = self.clock;
        Ok(templates)
    }

    pub(crate) fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.formats.is_empty()
    }

    pub(crate) fn render(&self, input: &ChatTemplateInput<'_>) -> Result<String, TokenizerError> {
        let tools = input.tools.filter(|tools| !is_nothing(tools));
        let (name, format) = self.choose(tools.is_some())?;
        let messages = messages::normalized(input.messages, format)?;
        let template = self.environment.get_template(name).map_err(syntax)?;
        template
            .render(self.variables(input, &messages, tools))
            .map_err(render_error)
    }

    /// The template `tool_use` if there are tools and it exists, else `default`, else the only one.
    fn choose(&self, with_tools: bool) -> Result<(&str, ContentFormat), TokenizerError> {
        let named = |wanted: &str| self.formats.iter().find(|(name, _)| name == wanted);
        let with_tools = with_tools.then(|| named(WITH_TOOLS)).flatten();
        with_tools
            .or_else(|| named(DEFAULT))
            .or_else(|| self.formats.first().filter(|_| self.formats.len() == 1))
            .map(|(name, format)| (name.as_str(), *format))
            .ok_or(TokenizerError::NoChatTemplate)
    }

    /// Later variables win: a request's arguments may override the special tokens, never the messages.
    fn variables(
        &self,
        input: &ChatTemplateInput<'_>,
        messages: &[Value],
        tools: Option<&Value>,
    ) -> JinjaValue {
        let clock = Arc::clone(&self.clock);
        let tokens = self
            .named_tokens
            .iter()
            .map(|(name, token)| (name.clone(), JinjaValue::from(token.as_str())));
        let kwargs = input
            .kwargs
            .iter()
            .map(|(name, value)| (name.clone(), JinjaValue::from(Serde(value))));
        let fixed = [
            ("messages", JinjaValue::from(Serde(messages))),
            ("tools", JinjaValue::from(Serde(tools))),
            ("documents", JinjaValue::from(())),
            (
                "add_generation_prompt",
                JinjaValue::from(input.add_generation_prompt),
            ),
            (
                "strftime_now",
                JinjaValue::from_function(move |format: &str| strftime::format(clock(), format)),
            ),
        ];
        let variables = tokens
            .chain(kwargs)
            .chain(fixed.map(|(name, value)| (name.to_owned(), value)))
            .collect::<BTreeMap<String, JinjaValue>>();
        JinjaValue::from(variables)
    }
}

fn is_nothing(tools: &Value) -> bool {
    tools.is_null() || tools.as_array().is_some_and(Vec::is_empty)
}

fn syntax(source: minijinja::Error) -> TokenizerError {
    TokenizerError::TemplateSyntax { source }
}

fn render_error(error: minijinja::Error) -> TokenizerError {
    match environment::raised_message(&error) {
        Some(message) => TokenizerError::Refused(message),
        None => TokenizerError::Template { source: error },
    }
}
