//! A chat request: what it says, and what it asks of the engine.

use serde_json::{Map, Value};

use crate::http::App;
use crate::http::generate::{Prepared, Question, new_rid, outputs_of};
use crate::http::openai::{BAD_REQUEST, BAD_REQUEST_ERROR, Fields};
use crate::http::reply::ApiError;
use crate::replies::ForcedText;
use crate::wire::sampling::SamplingParams;

/// A chat request whose types are right.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the wire")]
pub(super) struct ChatRequest {
    fields: Fields,
    pub(super) stream: bool,
    pub(super) logprobs: bool,
    pub(super) return_prompt_token_ids: bool,
    pub(super) return_token_ids: bool,
    pub(super) return_meta_info: bool,
    pub(super) include_usage: bool,
}

impl ChatRequest {
    pub(super) fn new(mut fields: Map<String, Value>) -> Result<Self, ApiError> {
        lower_roles(&mut fields);
        let fields = Fields(fields);
        let flag = |name: &str| fields.flag(name);
        let chat = Self {
            stream: flag("stream"),
            logprobs: flag("logprobs"),
            return_prompt_token_ids: flag("return_prompt_token_ids"),
            return_token_ids: flag("return_token_ids"),
            return_meta_info: flag("return_meta_info"),
            include_usage: fields.includes_usage(),
            fields,
        };
        chat.check()?;
        Ok(chat)
    }

    /// More tokens than the context has can never be meant.
    fn check_limit(&self, app: &App) -> Result<(), ApiError> {
        let context = app.context_length();
        match self
            .limit()
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
        if self
            .get("chat_template_kwargs")
            .is_some_and(|kwargs| kwargs.get("chat_template").is_some())
        {
            return refuse(
                "Request-supplied chat_template is not allowed. Start the server with --trust-request-chat-template to permit it.",
            );
        }
        if self.forces_a_tool() && self.tools().is_empty() {
            return refuse(if self.forced_tool_name().is_some() {
                "Tools cannot be empty if tool choice is set to a specific tool."
            } else {
                "Tools cannot be empty if tool choice is set to required."
            });
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
        Err(ApiError::OpenAi(message, BAD_REQUEST))
    }

    /// Most tokens of the answer; 0 is taken for no word about it.
    fn limit(&self) -> Option<i64> {
        let of_completion = self.fields.integer("max_completion_tokens");
        of_completion
            .filter(|limit| *limit != 0)
            .or_else(|| self.fields.integer("max_tokens"))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.fields.flag(name)
    }

    pub(super) fn flag_is_false(&self, name: &str) -> bool {
        self.fields.flag_is_false(name)
    }

    /// The name that the answer repeats.
    pub(super) fn model(&self) -> &str {
        self.fields.model()
    }

    /// A prompt that is given as ids.
    pub(super) fn prompt_ids(&self) -> Option<Vec<i64>> {
        self.fields.integers("input_ids")
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
        let mut params = self.fields.sampling(self.limit())?;
        self.fields.constrain(&mut params, schema_of)?;
        Ok(params)
    }

    /// Checks everything and plans the outputs, one per sample.
    pub(super) fn prepare(&self, app: &App) -> Result<Vec<Prepared>, ApiError> {
        self.check_limit(app)?;
        let prompt = self.prompt(app)?;
        let params = self.sampling()?;
        self.check_combination(&params)?;
        self.fields.check_features()?;
        params.verify(app.vocab_size)?;
        let question = Question {
            prompt,
            messages: Some(self.messages()),
            forced: self.forces_a_tool().then(|| self.forced_call()),
        };
        let top = self.fields.integer("top_logprobs");
        let logprobs = params.output_logprobs(self.logprobs, top, app.tokenizer.eos_ids());
        let samples = params.samples();
        let rid = self.fields.text("rid").filter(|_| samples == 1);
        let rids = (0..samples).map(|_| rid.map_or_else(new_rid, Into::into));
        outputs_of(app, question, &params, &logprobs, rids)
    }

    /// A tool that must be called and another constraint exclude each other.
    fn check_combination(&self, params: &SamplingParams) -> Result<(), ApiError> {
        let given = [
            &params.regex,
            &params.ebnf,
            &params.structural_tag,
            &params.json_schema,
        ];
        let is_constrained = given
            .iter()
            .any(|constraint| constraint.as_ref().is_some_and(|text| !text.is_empty()));
        if is_constrained && self.forces_a_tool() {
            return Err(ApiError::OpenAi(
                "tool_choice 'required' or a named tool cannot be combined with response_format, regex, or ebnf: the tool-call constraint \
                 and the output constraint cannot both be honored."
                    .into(),
                BAD_REQUEST,
            ));
        }
        Ok(())
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

/// The schema of a `response_format`; an empty `json_schema` is none, and then the schema may be beside it.
fn schema_of(format: &Value) -> Result<&Value, ApiError> {
    let filled = |value: &&Value| value.as_object().is_some_and(|fields| !fields.is_empty());
    let given = format.get("json_schema").filter(filled);
    let beside = format.get("schema").filter(filled);
    let schema = match (given, beside) {
        (Some(given), _) => given.get("schema").filter(|schema| !schema.is_null()),
        (None, Some(beside)) => Some(beside),
        (None, None) => {
            let message = "'NoneType' object has no attribute 'strict'";
            return Err(ApiError::Uncaught(message.into()));
        }
    };
    schema.ok_or_else(|| ApiError::Uncaught("issubclass() arg 1 must be a class".into()))
}

/// Roles are read in any case.
fn lower_roles(fields: &mut Map<String, Value>) {
    let messages = fields.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten() {
        if let Some(Value::String(role)) = message.get_mut("role") {
            role.make_ascii_lowercase();
        }
    }
}
