//! One compiled template, rendered as `transformers` 5.19 renders it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use minijinja::{Environment, Value};

use super::Clock;
use super::content_format::ContentFormat;
use super::continuation::Continuation;
use super::{dialect, environment, strftime, variables};
use crate::TokenizerError;
use crate::json::Json;

/// What a template is rendered with, as `tokenizer.apply_chat_template` of `transformers` takes it: nothing is normalized.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// The messages: objects.
    pub messages: &'a [Json],
    /// The tools.
    pub tools: Option<&'a Json>,
    /// Whether to end with the opening of an assistant message.
    pub add_generation_prompt: bool,
    /// Whether to end inside of the last message, so that the model goes on with it.
    pub continue_final_message: bool,
    /// Further variables, special tokens included.
    pub kwargs: &'a [(&'a str, Json)],
}

/// A compiled chat template. Rendering needs no lock: many threads may render at once.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    format: ContentFormat,
    clock: ClockOf,
}

#[derive(Clone)]
struct ClockOf(Clock);

impl std::fmt::Debug for ClockOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

const NAME: &str = "chat_template";

/// Fuel is a step of the template, or 64 bytes that it writes. What a template needs grows with what it is given; ten times what
/// the greediest of the known ones take is enough for everyone.
const FUEL: u64 = 1_000_000;
const FUEL_PER_BYTE: u64 = 64;

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    /// The template has a syntax error.
    pub fn new(source: &str) -> Result<Self, TokenizerError> {
        let syntax = |source| TokenizerError::TemplateSyntax { source };
        let mut environment = environment::chat().map_err(syntax)?;
        let bridged = dialect::bridged(
            &environment::without_generation_tags(source),
            environment::syntax().map_err(syntax)?,
        );
        environment
            .add_template_owned(NAME, bridged)
            .map_err(syntax)?;
        Ok(Self {
            environment,
            source: source.to_owned(),
            format: ContentFormat::detect(source),
            clock: ClockOf(Arc::new(SystemTime::now)),
        })
    }

    /// The same with another clock for `strftime_now`; the default is the system's, in UTC.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = ClockOf(clock);
        self
    }

    pub(super) fn clock(&self) -> Clock {
        Arc::clone(&self.clock.0)
    }

    pub(super) fn format(&self) -> ContentFormat {
        self.format
    }

    /// The Jinja source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders.
    ///
    /// # Errors
    /// The template refused the messages ([`TokenizerError::Refused`]), failed, or took more steps or memory than any template needs.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String, TokenizerError> {
        if !input.continue_final_message {
            return self.rendered(input, input.messages);
        }
        let continuation = Continuation::new(input.messages, &self.source)?;
        let text = self.rendered(input, &continuation.messages)?;
        continuation.cut(text)
    }

    fn rendered(
        &self,
        input: &RenderInput<'_>,
        messages: &[Json],
    ) -> Result<String, TokenizerError> {
        let weight =
            messages.iter().map(Json::weight).sum::<u64>() + input.tools.map_or(0, Json::weight);
        let clock = self.clock();
        let fixed = [
            (
                "messages",
                messages.iter().map(variables::value).collect::<Value>(),
            ),
            (
                "tools",
                input.tools.map_or(Value::from(()), variables::value),
            ),
            ("documents", Value::from(())),
            (
                "add_generation_prompt",
                Value::from(input.add_generation_prompt),
            ),
            (
                "strftime_now",
                Value::from_function(move |format: &str| strftime::format(clock(), format)),
            ),
        ];
        // Later variables win, but nobody replaces the messages.
        let mut all = BTreeMap::from(fixed);
        for (name, json) in input.kwargs {
            if !matches!(*name, "messages" | "tools" | "add_generation_prompt") {
                all.insert(name, variables::value(json));
            }
        }
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL + FUEL_PER_BYTE * weight));
        let template = environment
            .get_template(NAME)
            .map_err(|source| TokenizerError::TemplateSyntax { source })?;
        template.render(Value::from(all)).map_err(|error| {
            match environment::raised_message(&error) {
                Some(message) => TokenizerError::Refused(message),
                None if error.kind() == minijinja::ErrorKind::OutOfFuel => {
                    TokenizerError::Endless { weight }
                }
                None => TokenizerError::Template { source: error },
            }
        })
    }
}
