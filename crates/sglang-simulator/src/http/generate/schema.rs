//! The schema of `/generate` that the Rust and the Python server of SGLang 0.5.23 share: strict types, and serde's words for what departs from them.

use serde_json::{Map, Value};

use crate::wire::python;

/// A type of the schema.
#[derive(Debug, Clone, Copy)]
enum Strict {
    Bool,
    Int,
    Uint,
    Float,
    Str,
    Texts(&'static str),
    NullableTexts,
    Bools,
    Ints,
    NullableInts,
    Ids,
    IdLists,
    Labels,
    Biases,
    Params,
    Watermark,
    TextList,
    NullableTextList,
}

/// How a value departs from the schema, field by field in the body's order.
pub(super) fn violation(fields: &Map<String, Value>) -> Option<String> {
    fields.iter().find_map(|(name, value)| {
        let strict = match name.as_str() {
            "rid" | "text" | "extra_key" | "cache_salt" => Strict::Texts("StringOrList"),
            "input_ids" | "token_ids_logprob" => Strict::IdLists,
            "stream"
            | "return_text_in_logprobs"
            | "return_prompt_token_ids"
            | "require_reasoning" => Strict::Bool,
            "sampling_params" => Strict::Params,
            "return_logprob" | "return_hidden_states" | "return_sampling_mask" => Strict::Bools,
            "logprob_start_len" | "top_logprobs_num" => Strict::Ints,
            "bootstrap_host" | "bootstrap_pair_key" | "lora_path" | "custom_logit_processor" => {
                Strict::NullableTexts
            }
            "bootstrap_port" | "bootstrap_room" | "decode_tp_size" => Strict::NullableInts,
            "routed_dp_rank"
            | "disagg_prefill_dp_rank"
            | "priority"
            | "routed_experts_start_len" => Strict::Int,
            "routing_key" | "session_id" => Strict::Str,
            "max_thinking_tokens" => Strict::Uint,
            "custom_labels" => Strict::Labels,
            "modalities" => Strict::NullableTextList,
            _ => return None,
        };
        strict.unless_null(value)
    })
}

/// Names of the parameters, in the order in which an unknown one is told them.
const PARAMETERS: [(&str, Strict); 28] = [
    ("max_new_tokens", Strict::Int),
    ("stop", Strict::Texts("StringOrList")),
    ("stop_token_ids", Strict::Ids),
    ("stop_regex", Strict::Texts("StringOrList")),
    ("temperature", Strict::Float),
    ("top_p", Strict::Float),
    ("top_k", Strict::Int),
    ("min_p", Strict::Float),
    ("frequency_penalty", Strict::Float),
    ("presence_penalty", Strict::Float),
    ("repetition_penalty", Strict::Float),
    ("min_new_tokens", Strict::Int),
    ("n", Strict::Int),
    ("json_schema", Strict::Str),
    ("regex", Strict::Str),
    ("ebnf", Strict::Str),
    ("structural_tag", Strict::Str),
    ("ignore_eos", Strict::Bool),
    ("skip_special_tokens", Strict::Bool),
    ("spaces_between_special_tokens", Strict::Bool),
    ("no_stop_trim", Strict::Bool),
    ("stream_interval", Strict::Int),
    ("logit_bias", Strict::Biases),
    ("sampling_seed", Strict::Int),
    ("custom_params", Strict::Labels),
    ("beam_width", Strict::Int),
    ("watermark", Strict::Watermark),
    ("choice", Strict::TextList),
];

const WATERMARK: [(&str, Strict); 3] = [
    ("enabled", Strict::Bool),
    ("key", Strict::Str),
    ("context_window", Strict::Int),
];

impl Strict {
    fn unless_null(self, value: &Value) -> Option<String> {
        if value.is_null() {
            return None;
        }
        self.violation(value)
    }

    fn violation(self, value: &Value) -> Option<String> {
        let unless = |fits: bool, expected: &str| (!fits).then(|| invalid(value, expected));
        let is_int = |value: &Value| value.is_i64() || value.is_u64();
        match self {
            Self::Bool => unless(value.is_boolean(), "a boolean"),
            Self::Int => unless(is_int(value), "i64"),
            Self::Uint if value.as_i64().is_some_and(|value| value < 0) => {
                Some(format!("invalid value: integer `{value}`, expected u64"))
            }
            Self::Uint => unless(is_int(value), "u64"),
            Self::Float => unless(value.is_number(), "f64"),
            Self::Str => unless(value.is_string(), "a string"),
            Self::Texts(name) => one_or_many(value, name, value.is_string(), Self::Str, false),
            Self::NullableTexts => {
                let name = "OptionalStringOrList";
                one_or_many(value, name, value.is_string(), Self::Str, true)
            }
            Self::Bools => one_or_many(value, "BoolOrList", value.is_boolean(), Self::Bool, false),
            Self::Ints => one_or_many(value, "Int64OrList", is_int(value), Self::Int, false),
            Self::NullableInts => {
                one_or_many(value, "OptionalInt64OrList", is_int(value), Self::Int, true)
            }
            Self::Ids => each(value, Self::Int),
            Self::IdLists => match value.as_array() {
                None => Some(invalid(value, &or_many("TokenIdsOrList"))),
                Some(items) if items.first().is_none_or(Value::is_number) => each(value, Self::Int),
                Some(_) => each(value, Self::Ids),
            },
            Self::TextList => each(value, Self::Str),
            Self::NullableTextList => match value.as_array() {
                None => Some(invalid(value, "a sequence")),
                Some(items) => items.iter().find_map(|item| Self::Str.unless_null(item)),
            },
            Self::Biases => match value.as_object() {
                None => Some(invalid(value, "a map")),
                Some(fields) => fields.values().find_map(|bias| Self::Float.violation(bias)),
            },
            Self::Labels => None,
            Self::Params => match value {
                Value::Array(items) => items
                    .iter()
                    .find_map(|item| fields_of(item, "struct SamplingParams", &PARAMETERS)),
                _ => fields_of(value, &or_many("SamplingParamsOrList"), &PARAMETERS),
            },
            Self::Watermark => fields_of(value, "struct WatermarkRequestConfig", &WATERMARK),
        }
    }
}

fn or_many(name: &str) -> String {
    format!("a value or an array of values for {name}")
}

fn one_or_many(
    value: &Value,
    name: &str,
    is_one: bool,
    item: Strict,
    nullable: bool,
) -> Option<String> {
    match value {
        Value::Array(items) => items.iter().find_map(|value| {
            if nullable {
                item.unless_null(value)
            } else {
                item.violation(value)
            }
        }),
        _ if is_one => None,
        _ => Some(invalid(value, &or_many(name))),
    }
}

fn each(value: &Value, item: Strict) -> Option<String> {
    match value.as_array() {
        None => Some(invalid(value, "a sequence")),
        Some(items) => items.iter().find_map(|value| item.violation(value)),
    }
}

fn fields_of(value: &Value, expected: &str, known: &[(&str, Strict)]) -> Option<String> {
    let Some(fields) = value.as_object() else {
        return Some(invalid(value, expected));
    };
    fields.iter().find_map(|(name, value)| {
        if let Some((_, strict)) = known.iter().find(|(known, _)| known == name) {
            return strict.unless_null(value);
        }
        let names: Vec<_> = known.iter().map(|(name, _)| format!("`{name}`")).collect();
        let names = names.join(", ");
        Some(format!("unknown field `{name}`, expected one of {names}"))
    })
}

fn invalid(value: &Value, expected: &str) -> String {
    let got = match value {
        Value::Null => "null".into(),
        Value::Bool(flag) => format!("boolean `{flag}`"),
        Value::Number(number) if number.is_f64() => {
            format!("floating point `{}`", python::repr_number(number))
        }
        Value::Number(number) => format!("integer `{number}`"),
        Value::String(text) => format!("string \"{text}\""),
        Value::Array(_) => "sequence".into(),
        Value::Object(_) => "map".into(),
    };
    format!("invalid type: {got}, expected {expected}")
}
