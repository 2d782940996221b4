//! A chat request: what it says, and what it asks of the engine.

use serde_json::{Map, Number, Value, json};

use super::BAD_REQUEST_ERROR;
use crate::http::App;
use crate::http::generate::{Prepared, demands_of, new_rid};
use crate::http::reply::ApiError;
use crate::replies::ForcedText;
use crate::wire::logprobs::LogprobOptions;
use crate::wire::sampling::{OneOrMany, SamplingParams};
use crate::wire::text::TextOptions;

/// What a request asks for that names no model.
pub(in crate::http) const DEFAULT_MODEL: &str = "default";

/// A chat request whose types are right.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the wire")]
pub(super) struct ChatRequest {
    fields: Map<String, Value>,
    pub(super) stream: bool,
    pub(super) logprobs: bool,
    pub(super) return_prompt_token_ids: bool,
    pub(super) return_token_ids: bool,
    pub(super) return_meta_info: bool,
    pub(super) include_usage: bool,
}

impl ChatRequest {
    pub(super) fn new(fields: Map<String, Value>) -> Result<Self, ApiError> {
        let flag = |name: &str| is_true(fields.get(name));
        let include_usage = is_true(
            fields
                .get("stream_options")
                .and_then(|options| options.get("include_usage")),
        );
        let chat = Self {
            stream: flag("stream"),
            logprobs: flag("logprobs"),
            return_prompt_token_ids: flag("return_prompt_token_ids"),
            return_token_ids: flag("return_token_ids"),
            return_meta_info: flag("return_meta_info"),
            include_usage,
            fields,
        };
        chat.check()?;
        Ok(chat)
    }

    /// More tokens than the context has can never be meant.
    fn check_limit(&self, app: &App) -> Result<(), ApiError> {
        let limit = self
            .integer("max_completion_tokens")
            .or_else(|| self.integer("max_tokens"));
        let context = app.context_length();
        match limit
            .and_then(|limit| usize::try_from(limit).ok())
            .filter(|limit| *limit > context)
        {
            None => Ok(()),
            Some(limit) => {
                let message = format!(
                    "max_completion_tokens is too large: {limit}.This model supports at most {context} completion tokens."
                );
                Err(ApiError::OpenAi(message, BAD_REQUEST_ERROR))
            }
        }
    }

    fn check(&self) -> Result<(), ApiError> {
        let refuse = |message: &str| Err(ApiError::OpenAi(message.into(), BAD_REQUEST_ERROR));
        if self.messages().is_empty() {
            return refuse("Messages cannot be empty.");
        }
        if let Some(kind) = self.unsupported_content() {
            return refuse(&format!(
                "Model only supports text input; received unsupported content type '{kind}'."
            ));
        }
        if self.forces_a_tool() && self.tools().is_empty() {
            return refuse("Tools cannot be empty if tool choice is set to required.");
        }
        let known = |name: &str| {
            self.tools()
                .iter()
                .any(|tool| tool["function"]["name"] == name)
        };
        if let Some(name) = self.forced_tool_name().filter(|name| !known(name)) {
            return refuse(&format!("Tool '{name}' not found in tools list."));
        }
        if !self.stream {
            return Ok(());
        }
        let (of_chat, unsupported) = if self.return_prompt_token_ids {
            ("", "return_prompt_token_ids")
        } else if self.return_token_ids {
            (" on /v1/chat/completions", "return_token_ids")
        } else if self.return_meta_info {
            ("", "return_meta_info")
        } else {
            return Ok(());
        };
        let message = format!(
            "{unsupported} is not supported with streaming{of_chat}. Please set stream=false when using {unsupported}=true."
        );
        Err(ApiError::OpenAi(message, "BadRequest"))
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        is_true(self.fields.get(name))
    }

    /// Whether it says no, where silence means yes.
    pub(super) fn flag_is_false(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| value == false)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Value::String(text) => text.trim().parse().ok(),
            #[expect(clippy::cast_possible_truncation, reason = "checked to be whole")]
            Value::Number(number) => number
                .as_i64()
                .or_else(|| number.as_f64().map(|value| value as i64)),
            _ => None,
        }
    }

    fn number(&self, name: &str) -> Option<Number> {
        match self.get(name)? {
            // pydantic makes it a float
            Value::Number(number) => Number::from_f64(number.as_f64()?),
            Value::String(text) => Number::from_f64(text.trim().parse().ok()?),
            _ => None,
        }
    }

    fn texts(&self, name: &str) -> Option<OneOrMany> {
        serde_json::from_value(self.get(name)?.clone()).ok()
    }

    /// The name that the answer repeats.
    pub(super) fn model(&self) -> &str {
        self.get("model")
            .and_then(Value::as_str)
            .unwrap_or(DEFAULT_MODEL)
    }

    pub(super) fn messages(&self) -> &[Value] {
        self.get("messages")
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    pub(super) fn tools(&self) -> &[Value] {
        self.get("tools")
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// Whether the text of the answer is searched for calls.
    pub(super) fn parses_tool_calls(&self, app: &App) -> bool {
        let wanted = self
            .get("tool_choice")
            .is_none_or(|choice| choice != "none");
        wanted && !self.tools().is_empty() && app.config.server.tool_call_parser.is_some()
    }

    fn forced_tool_name(&self) -> Option<&str> {
        self.get("tool_choice")?["function"]["name"].as_str()
    }

    fn forces_a_tool(&self) -> bool {
        self.forced_tool_name().is_some()
            || self
                .get("tool_choice")
                .is_some_and(|choice| choice == "required")
    }

    fn sampling(&self) -> Result<SamplingParams, ApiError> {
        let logit_bias = self
            .get("logit_bias")
            .cloned()
            .map(serde_json::from_value)
            .transpose();
        let refuse =
            |error: serde_json::Error| ApiError::OpenAi(error.to_string(), BAD_REQUEST_ERROR);
        let schema = self
            .get("response_format")
            .map(|format| match format["type"].as_str() {
                Some("json_object") => json!({"type": "object"}),
                _ => format["json_schema"]["schema"].clone(),
            });
        Ok(SamplingParams {
            max_new_tokens: self
                .integer("max_completion_tokens")
                .or_else(|| self.integer("max_tokens")),
            stop: self.texts("stop"),
            stop_token_ids: self
                .get("stop_token_ids")
                .and_then(|ids| serde_json::from_value(ids.clone()).ok()),
            stop_regex: self.texts("stop_regex"),
            temperature: self.number("temperature"),
            top_p: self.number("top_p"),
            top_k: self.integer("top_k"),
            min_p: self.number("min_p"),
            frequency_penalty: self.number("frequency_penalty"),
            presence_penalty: self.number("presence_penalty"),
            repetition_penalty: self.number("repetition_penalty"),
            min_new_tokens: self.integer("min_tokens"),
            n: self.integer("n"),
            json_schema: schema
                .filter(Value::is_object)
                .map(|schema| schema.to_string()),
            regex: self.get("regex").and_then(Value::as_str).map(str::to_owned),
            ebnf: self.get("ebnf").and_then(Value::as_str).map(str::to_owned),
            ignore_eos: Some(self.flag("ignore_eos")),
            skip_special_tokens: Some(
                self.get("skip_special_tokens")
                    .is_none_or(|skip| skip != false),
            ),
            no_stop_trim: Some(self.flag("no_stop_trim")),
            logit_bias: logit_bias.map_err(refuse)?,
            sampling_seed: self.integer("seed"),
            ..SamplingParams::default()
        })
    }

    /// Checks everything and plans the outputs, one per sample.
    pub(super) fn prepare(&self, app: &App) -> Result<Vec<Prepared>, ApiError> {
        let refuse = |message: String| ApiError::OpenAi(message, BAD_REQUEST_ERROR);
        let params = self.sampling()?;
        self.check_limit(app)?;
        let prompt = self.prompt(app)?;
        params.verify(app.vocab_size).map_err(refuse)?;
        let rules = app.check_lengths(&prompt, &params).map_err(refuse)?;
        app.check_vocabulary(&prompt)?;
        let samples = params.samples();
        let rid = self
            .get("rid")
            .and_then(Value::as_str)
            .filter(|_| samples == 1);
        (0..samples)
            .map(|sample| {
                let mut demands = demands_of(&params, rules.clone(), sample).map_err(refuse)?;
                if self.forces_a_tool() {
                    demands.forced_text = Some(self.forced_call());
                }
                let output = app
                    .model
                    .reply(&prompt, Some(self.messages()), &demands)
                    .map_err(|error| refuse(error.to_string()))?;
                Ok(Prepared {
                    rid: rid.map_or_else(new_rid, Into::into),
                    prompt: prompt.clone(),
                    output,
                    logprobs: self.logprob_options(&params),
                    text: TextOptions {
                        skip_special_tokens: params.skip_special_tokens.unwrap_or(true),
                        no_stop_trim: params.no_stop_trim.unwrap_or(false),
                    },
                    return_prompt_token_ids: false,
                    leads_samples: samples > 1 && sample == 0,
                })
            })
            .collect()
    }

    fn logprob_options(&self, params: &SamplingParams) -> LogprobOptions {
        let top = self
            .integer("top_logprobs")
            .and_then(|top| usize::try_from(top).ok())
            .unwrap_or(0);
        LogprobOptions {
            enabled: self.logprobs,
            prompt_from: None,
            top,
            token_ids: None,
            text: true,
            temperature: params.temperature().unwrap_or(1.0),
        }
        .only_if_enabled()
    }

    fn forced_call(&self) -> ForcedText {
        let forced = self.forced_tool_name();
        let tools = self.tools().iter().map(|tool| &tool["function"]);
        let usable = tools.filter(|function| forced.is_none_or(|name| function["name"] == name));
        ForcedText::of_tools(
            usable
                .map(|function| {
                    (
                        function["name"].as_str().unwrap_or_default().to_owned(),
                        function["parameters"].clone(),
                    )
                })
                .collect(),
        )
    }
}

fn is_true(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(flag)) => *flag,
        Some(Value::Number(number)) => number.as_u64() == Some(1),
        Some(Value::String(text)) => ["true", "1", "yes", "on"].contains(&text.as_str()),
        _ => false,
    }
}
