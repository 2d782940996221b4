//! Type checks of a chat request, in the words of pydantic.

use serde_json::{Map, Value};

use super::messages::MESSAGE;
use crate::http::body::Place;
use crate::http::openai::{BIASES, NULLABLE_TEXTS, RESPONSE_FORMAT, STREAM_OPTIONS, TEXTS};
use crate::http::problem::{Location, Problem};
use crate::http::pydantic::{self, Field, Kind, filled, optional, required};
use crate::http::reply::ApiError;

const HIDDEN: Kind = Kind::Union(&[Kind::Bool, Kind::Literal(&["last"], "'last'")]);

const TOOL: Kind = Kind::Object("Tool", &[required("function", Kind::By(check_function))]);

const FUNCTION: [Field; 2] = [
    optional("description", Kind::Str),
    required("name", Kind::Str),
];

const TOOL_CHOICE: Kind = Kind::Union(&[
    Kind::Object("ToolChoice", &[required("function", CHOSEN_FUNCTION)]),
    Kind::Literal(
        &["auto", "required", "none"],
        "'auto', 'required' or 'none'",
    ),
]);

const CHOSEN_FUNCTION: Kind = Kind::Object("ToolChoiceFuncName", &[optional("name", Kind::Str)]);

/// The fields in the order of `ChatCompletionRequest`.
const FIELDS: [Field; 58] = [
    required("messages", Kind::List(&MESSAGE)),
    filled("model", Kind::Str),
    filled("frequency_penalty", Kind::Float),
    optional("logit_bias", BIASES),
    filled("logprobs", Kind::Bool),
    optional("top_logprobs", Kind::Int),
    optional("max_tokens", Kind::Int),
    optional("max_completion_tokens", Kind::Int),
    filled("n", Kind::Int),
    filled("presence_penalty", Kind::Float),
    optional("response_format", RESPONSE_FORMAT),
    optional("seed", Kind::Int),
    optional("stop", TEXTS),
    filled("stream", Kind::Bool),
    optional("stream_options", STREAM_OPTIONS),
    optional("temperature", Kind::Float),
    optional("top_p", Kind::Float),
    optional("user", Kind::Str),
    optional("tools", Kind::List(&TOOL)),
    optional("tool_choice", TOOL_CHOICE),
    filled("parallel_tool_calls", Kind::Bool),
    filled("return_hidden_states", HIDDEN),
    filled("return_routed_experts", Kind::Bool),
    filled("routed_experts_start_len", Kind::Int),
    filled("return_cached_tokens_details", Kind::Bool),
    filled("return_spec_tokens_details", Kind::Bool),
    filled("return_prompt_token_ids", Kind::Bool),
    filled("return_token_ids", Kind::Bool),
    filled("return_meta_info", Kind::Bool),
    filled("return_input_ids_in_sglext", Kind::Bool),
    filled("return_output_ids_in_sglext", Kind::Bool),
    filled("return_sampling_mask", Kind::Bool),
    optional("top_k", Kind::Int),
    optional("min_p", Kind::Float),
    filled("min_tokens", Kind::Int),
    optional("regex", Kind::Str),
    optional("ebnf", Kind::Str),
    optional("repetition_penalty", Kind::Float),
    optional("stop_token_ids", Kind::List(&Kind::Int)),
    optional("stop_regex", TEXTS),
    filled("no_stop_trim", Kind::Bool),
    filled("ignore_eos", Kind::Bool),
    filled("continue_final_message", Kind::Bool),
    filled("skip_special_tokens", Kind::Bool),
    optional("lora_path", NULLABLE_TEXTS),
    optional("session_id", Kind::Str),
    optional("session_params", Kind::Dict("any,any")),
    filled("separate_reasoning", Kind::Bool),
    filled("stream_reasoning", Kind::Bool),
    optional("chat_template_kwargs", Kind::Dict("any,any")),
    optional("custom_logit_processor", NULLABLE_TEXTS),
    optional("custom_params", Kind::Dict("any,any")),
    optional("watermark", Kind::Dict("str,any")),
    optional("input_ids", Kind::List(&Kind::Int)),
    optional("rid", TEXTS),
    optional("extra_key", TEXTS),
    optional("cache_salt", TEXTS),
    optional("priority", Kind::Int),
];

/// Checks types; values are checked later.
pub(super) fn check(place: &Place, fields: &Map<String, Value>) -> Result<(), ApiError> {
    if fields.get("response_format").is_some_and(has_no_get) {
        return Err(ApiError::Crashed);
    }
    if fields.contains_key("messages") {
        place.check(&FIELDS, fields)
    } else {
        place.check(&FIELDS, &with_tool_choice(fields))
    }
}

/// SGLang asks every `response_format` of a chat that is true for its type, whatever it is.
fn has_no_get(format: &Value) -> bool {
    match format {
        Value::Null | Value::Object(_) => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
    }
}

/// A function of a tool.
fn check_function(at: &Location, function: &Value, problems: &mut Vec<Problem>) {
    let Some(fields) = function.as_object() else {
        problems.push(at.no_object(function));
        return;
    };
    if fields.contains_key("name") {
        pydantic::check(&FUNCTION, at, fields, problems);
        return;
    }
    // SGLang notes the order of the keys before it validates, and what is missing is told with the whole
    let mut noted = fields.clone();
    let keys: Vec<Value> = fields.keys().map(|key| key.as_str().into()).collect();
    noted.insert("key_order".into(), keys.into());
    pydantic::check(&FUNCTION, at, &noted, problems);
}

/// The request as the server tells it when something is missing: it adds a tool choice before it validates.
fn with_tool_choice(fields: &Map<String, Value>) -> Map<String, Value> {
    let mut shown = fields.clone();
    if !shown.contains_key("tool_choice") {
        let has_tools = shown.get("tools").is_some_and(|tools| !tools.is_null());
        let choice = if has_tools { "auto" } else { "none" };
        shown.insert("tool_choice".into(), choice.into());
    }
    shown
}
