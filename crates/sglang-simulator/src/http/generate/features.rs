//! What a server says that was started without a feature, and how a request asks for one.

use serde_json::Value;

use crate::http::reply::ApiError;
use crate::wire::python;

fn native(message: impl Into<String>) -> ApiError {
    ApiError::Native(message.into())
}

/// The first text of one or several.
pub(in crate::http) fn first_text(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::String(text) => Some(text.as_str()).filter(|text| !text.is_empty()),
        Value::Array(texts) => texts
            .iter()
            .filter_map(Value::as_str)
            .find(|text| !text.is_empty()),
        _ => None,
    }
}

/// What Python takes for true.
pub(super) fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => *flag,
        Value::Array(items) => items.iter().any(is_truthy),
        Value::String(text) => !text.is_empty(),
        _ => false,
    }
}

/// Adapters are not simulated.
pub(in crate::http) fn no_lora(adapter: &str) -> ApiError {
    native(format!(
        "LoRA adapter '{adapter}' was requested, but LoRA is not enabled. Please launch the server with --enable-lora flag and preload \
         adapters using --lora-paths or /load_lora_adapter endpoint."
    ))
}

/// Hidden states are not simulated.
pub(in crate::http) fn no_hidden_states() -> ApiError {
    native(
        "The server is not configured to return hidden states. Please set `--return-hidden-states-mode last`, \
         `--return-hidden-states-mode full`, or the legacy `--enable-return-hidden-states` flag.",
    )
}

/// Logit processors are Python code.
pub(in crate::http) fn no_logit_processor() -> ApiError {
    native(
        "The server is not configured to enable custom logit processor. Please set `--enable-custom-logit-processor` to enable this feature.",
    )
}

/// Which tokens a sampler let through is not simulated.
pub(in crate::http) fn no_sampling_mask() -> ApiError {
    native("the simulated engine does not support return_sampling_mask.")
}

/// SGLang's own sessions are not simulated, so that none is ever open.
pub(in crate::http) fn check_session(session_params: Option<&Value>) -> Result<(), ApiError> {
    match session_params.and_then(|params| params.get("id")) {
        None | Some(Value::Null) => Ok(()),
        Some(id) => {
            let id = id.as_str().map_or_else(|| python::repr(id), str::to_owned);
            Err(native(format!(
                "Invalid request: session id {id} does not exist"
            )))
        }
    }
}
