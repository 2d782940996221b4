//! Type checks of a chat request, in the words of pydantic.

use serde_json::{Map, Value};

use super::messages::check_message;
use crate::http::body::{Place, Problem};
use crate::http::pydantic::{self, Field, Kind, Location, filled, optional};
use crate::http::reply::ApiError;
use crate::wire::python;

const TEXTS: Kind = Kind::Union(&[Kind::List(&Kind::Str), Kind::Str]);
const NULLABLE_TEXTS: Kind = Kind::Union(&[Kind::Nullables(&Kind::Str), Kind::Str]);
const HIDDEN: Kind = Kind::Union(&[Kind::Bool, Kind::Literal(&["last"], "'last'")]);

/// Fields before `response_format`, in the order of `ChatCompletionRequest`.
const FIRST: [Field; 9] = [
    filled("model", Kind::Str),
    filled("frequency_penalty", Kind::Float),
    optional("logit_bias", Kind::DictOf("str,float", &Kind::Float)),
    filled("logprobs", Kind::Bool),
    optional("top_logprobs", Kind::Int),
    optional("max_tokens", Kind::Int),
    optional("max_completion_tokens", Kind::Int),
    filled("n", Kind::Int),
    filled("presence_penalty", Kind::Float),
];

/// Fields between `response_format` and `stream_options`.
const SECOND: [Field; 3] = [
    optional("seed", Kind::Int),
    optional("stop", TEXTS),
    filled("stream", Kind::Bool),
];

/// Fields between `stream_options` and `tools`.
const THIRD: [Field; 3] = [
    optional("temperature", Kind::Float),
    optional("top_p", Kind::Float),
    optional("user", Kind::Str),
];

/// Fields after the choice of tools.
const LAST: [Field; 38] = [
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
    let mut problems = Vec::new();
    check_messages(fields, &mut problems);
    pydantic::check(&FIRST, fields, &mut problems);
    check_format(fields.get("response_format"), &mut problems);
    pydantic::check(&SECOND, fields, &mut problems);
    check_stream_options(fields.get("stream_options"), &mut problems);
    pydantic::check(&THIRD, fields, &mut problems);
    check_tools(fields.get("tools"), &mut problems);
    check_tool_choice(fields.get("tool_choice"), &mut problems);
    pydantic::check(&LAST, fields, &mut problems);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(place.invalid(&problems))
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

pub(super) fn no_object(at: &Location, value: &Value) -> Problem {
    let message = "Input should be a valid dictionary or object to extract fields from";
    at.problem("model_attributes_type", message, value)
}

pub(super) fn missing(at: &Location, field: &str, within: &Value) -> Problem {
    at.key(field).problem("missing", "Field required", within)
}

fn check_messages(fields: &Map<String, Value>, problems: &mut Vec<Problem>) {
    let at = Location::field("messages");
    match fields.get("messages") {
        None => problems.push(Problem::new(
            "missing",
            "('body', 'messages')",
            "Field required",
            &shown(fields),
        )),
        Some(Value::Array(messages)) => {
            for (index, message) in messages.iter().enumerate() {
                check_message(&at.index(index), message, problems);
            }
        }
        Some(other) => {
            problems.push(at.problem("list_type", "Input should be a valid list", other));
        }
    }
}

/// The words for a wrong `response_format`: those of its first kind.
pub(in crate::http) fn check_format(format: Option<&Value>, problems: &mut Vec<Problem>) {
    let Some(format) = format.filter(|format| !format.is_null()) else {
        return;
    };
    let at = Location::field("response_format").key("ResponseFormat");
    let Some(fields) = format.as_object() else {
        problems.push(no_object(&at, format));
        return;
    };
    match fields.get("type").and_then(Value::as_str) {
        Some("text" | "json_object") => {}
        Some("json_schema") => check_json_schema(&at.key("json_schema"), fields, problems),
        Some("structural_tag")
            if fields.contains_key("format")
                || fields.contains_key("structures") && fields.contains_key("triggers") => {}
        None if !fields.contains_key("type") => problems.push(missing(&at, "type", format)),
        _ => {
            let kinds = "'text', 'json_object' or 'json_schema'";
            let kind = fields.get("type").unwrap_or(&Value::Null);
            let problem =
                at.key("type")
                    .problem("literal_error", &format!("Input should be {kinds}"), kind);
            let context = format!("'expected': {}", python::repr_str(kinds));
            problems.push(problem.with_context(&context));
        }
    }
}

fn check_json_schema(at: &Location, format: &Map<String, Value>, problems: &mut Vec<Problem>) {
    let Some(schema) = format.get("json_schema").filter(|schema| !schema.is_null()) else {
        return;
    };
    let Some(fields) = schema.as_object() else {
        problems.push(no_object(at, schema));
        return;
    };
    match fields.get("name") {
        None => problems.push(missing(at, "name", schema)),
        Some(name) => Kind::Str.check(name, &at.key("name"), problems),
    }
    let nullable = |name: &str| fields.get(name).filter(|value| !value.is_null());
    if let Some(inner) = nullable("schema") {
        Kind::Dict("str,object").check(inner, &at.key("schema"), problems);
    }
    if let Some(strict) = nullable("strict") {
        Kind::Bool.check(strict, &at.key("strict"), problems);
    }
}

pub(in crate::http) fn check_stream_options(options: Option<&Value>, problems: &mut Vec<Problem>) {
    let Some(options) = options.filter(|options| !options.is_null()) else {
        return;
    };
    let at = Location::field("stream_options");
    let Some(fields) = options.as_object() else {
        problems.push(no_object(&at, options));
        return;
    };
    for name in ["include_usage", "continuous_usage_stats"] {
        if let Some(flag) = fields.get(name).filter(|flag| !flag.is_null()) {
            Kind::Bool.check(flag, &at.key(name), problems);
        }
    }
}

fn check_tools(tools: Option<&Value>, problems: &mut Vec<Problem>) {
    let at = Location::field("tools");
    let tools = match tools {
        None | Some(Value::Null) => return,
        Some(Value::Array(tools)) => tools,
        Some(other) => {
            problems.push(at.problem("list_type", "Input should be a valid list", other));
            return;
        }
    };
    for (index, tool) in tools.iter().enumerate() {
        let at = at.index(index);
        let Some(fields) = tool.as_object() else {
            problems.push(no_object(&at, tool));
            continue;
        };
        let Some(function) = fields.get("function") else {
            problems.push(missing(&at, "function", tool));
            continue;
        };
        let at = at.key("function");
        let Some(fields) = function.as_object() else {
            problems.push(no_object(&at, function));
            continue;
        };
        match fields.get("name") {
            None => {
                // SGLang notes the order of the keys before it validates
                let mut noted = fields.clone();
                let keys: Vec<Value> = fields.keys().map(|key| key.as_str().into()).collect();
                noted.insert("key_order".into(), keys.into());
                problems.push(missing(&at, "name", &Value::Object(noted)));
            }
            Some(name) => Kind::Str.check(name, &at.key("name"), problems),
        }
        if let Some(description) = fields.get("description").filter(|text| !text.is_null()) {
            Kind::Str.check(description, &at.key("description"), problems);
        }
    }
}

fn check_tool_choice(choice: Option<&Value>, problems: &mut Vec<Problem>) {
    let Some(choice) = choice.filter(|choice| !choice.is_null()) else {
        return;
    };
    let at = Location::field("tool_choice");
    let by_name = at.key("ToolChoice");
    let mut of_name = Vec::new();
    match choice.as_object() {
        None => of_name.push(no_object(&by_name, choice)),
        Some(fields) => match fields.get("function") {
            None => of_name.push(missing(&by_name, "function", choice)),
            Some(Value::Object(function)) => {
                let at = by_name.key("function");
                match function.get("name") {
                    None | Some(Value::Null | Value::String(_)) => {}
                    Some(name) => Kind::Str.check(name, &at.key("name"), &mut of_name),
                }
            }
            Some(other) => of_name.push(no_object(&by_name.key("function"), other)),
        },
    }
    if of_name.is_empty() {
        return;
    }
    let word = Kind::Literal(
        &["auto", "required", "none"],
        "'auto', 'required' or 'none'",
    );
    let mut of_word = Vec::new();
    word.check(
        choice,
        &at.key("literal['auto','required','none']"),
        &mut of_word,
    );
    if !of_word.is_empty() {
        problems.append(&mut of_name);
        problems.append(&mut of_word);
    }
}

/// The request as the server sees it: it adds a tool choice before it validates.
fn shown(fields: &Map<String, Value>) -> String {
    let mut shown = fields.clone();
    if !shown.contains_key("tool_choice") {
        let choice = if shown.get("tools").is_some_and(|tools| !tools.is_null()) {
            "auto"
        } else {
            "none"
        };
        shown.insert("tool_choice".into(), choice.into());
    }
    python::repr(&Value::Object(shown))
}
