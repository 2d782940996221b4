//! The two checks of types that a body of `/generate` passes in SGLang 0.5.23: pydantic's, which is lax and stands here, and then that of
//! [`super::schema`], which is strict.
//!
//! Prompts of token ids are read on their own, since they are long; they are looked at here only when they cannot be.

use serde_json::{Map, Value};

use super::{PLACE, schema};
use crate::http::problem::{Location, Problem};
use crate::http::pydantic::{Field, Kind, filled, optional};
use crate::http::reply::ApiError;

const TEXTS: Kind = Kind::Union(&[Kind::Str, Kind::List(&Kind::Str)]);
const BOOLS: Kind = Kind::Union(&[Kind::List(&Kind::Bool), Kind::Bool]);
const INTS: Kind = Kind::Union(&[Kind::List(&Kind::Int), Kind::Int]);
const NULLABLE_TEXTS: Kind = Kind::Union(&[Kind::Nullables(&Kind::Str), Kind::Str]);
const NULLABLE_INTS: Kind = Kind::Union(&[Kind::Nullables(&Kind::Int), Kind::Int]);
const PARAMS: Kind = Kind::Union(&[Kind::List(&Kind::Dict("str,any")), Kind::Dict("str,any")]);
const ID_LISTS: Kind = Kind::Union(&[Kind::List(&Kind::List(&Kind::Int)), Kind::List(&Kind::Int)]);
const EMBEDDINGS: Kind = Kind::Union(&[
    Kind::List(&Kind::List(&Kind::List(&Kind::Float))),
    Kind::List(&Kind::List(&Kind::Float)),
]);
const MODE: Kind = Kind::Literal(&["selected", "support"], "'selected' or 'support'");
const LOGPROBS_MODE: Kind = Kind::Union(&[Kind::Nullables(&MODE), MODE]);
const HIDDEN: Kind = Kind::Union(&[
    Kind::List(&HIDDEN_MODE),
    Kind::Bool,
    Kind::Literal(&["last"], "'last'"),
]);
const HIDDEN_MODE: Kind = Kind::Union(&[Kind::Bool, Kind::Literal(&["last"], "'last'")]);

/// The fields in the order of `GenerateReqInput`. Media and cache hints are left out: nothing here looks at them.
const FIELDS: [Field; 48] = [
    optional("rid", TEXTS),
    optional("session_id", Kind::Str),
    optional("text", TEXTS),
    optional("input_ids", Kind::By(check_token_ids)),
    optional("input_embeds", EMBEDDINGS),
    filled("use_audio_in_video", Kind::Bool),
    optional("sampling_params", PARAMS),
    optional("return_logprob", BOOLS),
    optional("logprob_start_len", INTS),
    optional("top_logprobs_num", INTS),
    optional("token_ids_logprob", ID_LISTS),
    optional("return_sampling_mask", BOOLS),
    optional("sampling_logprobs_mode", LOGPROBS_MODE),
    filled("return_text_in_logprobs", Kind::Bool),
    filled("return_flat_raw_top_logprobs", Kind::Bool),
    filled("return_flat_raw_output_top_logprobs", Kind::Bool),
    filled("return_flat_raw_top_logprobs_b64", Kind::Bool),
    filled("stream", Kind::Bool),
    filled("log_metrics", Kind::Bool),
    filled("return_hidden_states", HIDDEN),
    filled("return_routed_experts", Kind::Bool),
    filled("routed_experts_start_len", Kind::Int),
    filled("return_indexer_topk", Kind::Bool),
    optional("modalities", Kind::List(&Kind::Str)),
    optional("session_params", Kind::Dict("str,any")),
    optional("lora_path", NULLABLE_TEXTS),
    optional("custom_logit_processor", NULLABLE_TEXTS),
    optional("bootstrap_host", NULLABLE_TEXTS),
    optional("bootstrap_port", NULLABLE_INTS),
    optional("bootstrap_room", NULLABLE_INTS),
    optional("bootstrap_pair_key", NULLABLE_TEXTS),
    optional("decode_tp_size", NULLABLE_INTS),
    optional("routed_dp_rank", Kind::Int),
    optional("data_parallel_rank", Kind::Int),
    optional("disagg_prefill_dp_rank", Kind::Int),
    optional("routing_key", Kind::Str),
    optional("conversation_id", Kind::Str),
    filled("background", Kind::Bool),
    filled("require_reasoning", Kind::Bool),
    optional("max_thinking_tokens", Kind::Int),
    optional("priority", Kind::Int),
    optional("extra_key", TEXTS),
    filled("no_logs", Kind::Bool),
    optional("custom_labels", Kind::DictOf("str,str", &Kind::Str)),
    filled("return_bytes", Kind::Bool),
    filled("return_entropy", Kind::Bool),
    filled("return_prompt_token_ids", Kind::Bool),
    optional("cache_salt", TEXTS),
];

/// Checks the types of a body's fields.
pub(super) fn check(fields: &Map<String, Value>) -> Result<(), ApiError> {
    PLACE.check(&FIELDS, fields)?;
    schema::violation(fields).map_or(Ok(()), |violation| Err(ApiError::Schema(violation)))
}

/// Token ids or lists of them.
fn check_token_ids(at: &Location, value: &Value, problems: &mut Vec<Problem>) {
    if let Some(message) = token_ids_problem(value) {
        problems.push(at.value_error(&message, value));
    }
}

fn token_ids_problem(value: &Value) -> Option<String> {
    let Value::Array(items) = value else {
        return Some(format!("must be list or null; got {}", type_name(value)));
    };
    let first = items.first()?;
    if is_int(first) {
        return ids_problem(items);
    }
    if !first.is_array() {
        let name = type_name(first);
        return Some(format!("elements must be int or list; got {name}"));
    }
    items.iter().enumerate().find_map(|(index, row)| {
        let problem = match row {
            Value::Array(ids) => ids_problem(ids),
            Value::Null => Some("must not be None".into()),
            other => Some(format!("must be list; got {}", type_name(other))),
        };
        problem.map(|problem| format!("row {index}: {problem}"))
    })
}

fn ids_problem(items: &[Value]) -> Option<String> {
    let (index, odd) = items.iter().enumerate().find(|(_, item)| !is_int(item))?;
    let name = type_name(odd);
    Some(match index {
        0 => format!("elements must be int; got {name}"),
        _ => format!(
            "contains non-int64 element: '{name}' object cannot be interpreted as an integer"
        ),
    })
}

fn is_int(value: &Value) -> bool {
    match value {
        Value::Bool(_) => true,
        Value::Number(number) => !number.is_f64(),
        _ => false,
    }
}

/// How Python names the type of a value.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}
