//! Type checks of a completion request, in the words of pydantic.

use serde_json::{Map, Value};

use super::PLACE;
use crate::http::openai::{BIASES, RESPONSE_FORMAT, STREAM_OPTIONS, TEXTS};
use crate::http::problem::{Location, Problem};
use crate::http::pydantic::{self, Field, Kind, filled, optional, required};
use crate::http::reply::ApiError;

const PROMPT: Kind = Kind::Union(&[
    Kind::List(&Kind::Int),
    Kind::List(&Kind::List(&Kind::Int)),
    Kind::Str,
    Kind::List(&Kind::Str),
]);

/// The fields in the order of `CompletionRequest`.
const FIELDS: [Field; 40] = [
    filled("model", Kind::Str),
    required("prompt", PROMPT),
    optional("best_of", Kind::Int),
    filled("echo", Kind::Bool),
    filled("frequency_penalty", Kind::Float),
    optional("logit_bias", BIASES),
    optional("logprobs", Kind::Int),
    filled("max_tokens", Kind::By(check_limit)),
    filled("n", Kind::Int),
    filled("presence_penalty", Kind::Float),
    optional("seed", Kind::Int),
    optional("stop", TEXTS),
    filled("stream", Kind::Bool),
    optional("stream_options", STREAM_OPTIONS),
    optional("suffix", Kind::Str),
    filled("temperature", Kind::Float),
    filled("top_p", Kind::Float),
    optional("user", Kind::Str),
    filled("return_token_ids", Kind::Bool),
    filled("top_k", Kind::Int),
    filled("min_p", Kind::Float),
    filled("min_tokens", Kind::Int),
    optional("json_schema", Kind::Str),
    optional("regex", Kind::Str),
    optional("ebnf", Kind::Str),
    filled("repetition_penalty", Kind::Float),
    optional("stop_token_ids", Kind::List(&Kind::Int)),
    optional("stop_regex", TEXTS),
    filled("no_stop_trim", Kind::Bool),
    filled("ignore_eos", Kind::Bool),
    filled("skip_special_tokens", Kind::Bool),
    optional("session_id", Kind::Str),
    optional("session_params", Kind::Dict("any,any")),
    optional("custom_params", Kind::Dict("any,any")),
    optional("custom_logit_processor", Kind::Str),
    optional("watermark", Kind::Dict("str,any")),
    optional("rid", TEXTS),
    optional("extra_key", TEXTS),
    optional("priority", Kind::Int),
    optional("response_format", RESPONSE_FORMAT),
];

/// Checks types.
pub(super) fn check(fields: &Map<String, Value>) -> Result<(), ApiError> {
    PLACE.check(&FIELDS, fields)
}

fn check_limit(at: &Location, limit: &Value, problems: &mut Vec<Problem>) {
    match pydantic::integer(limit).map(|limit| limit.as_i64()) {
        None => Kind::Int.check(limit, at, problems),
        Some(Some(..=0)) => problems.push(at.value_error("max_tokens must be positive", limit)),
        Some(_) => {}
    }
}
