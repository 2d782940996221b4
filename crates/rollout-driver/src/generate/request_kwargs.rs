//! Sampling parameters: as `/generate` takes them, and as an agent gets them for chat requests. Pure.

use serde_json::{Map, Value, json};

use super::chat_fields::CHAT_FIELDS;
use crate::config::Sampling;

/// Names that differ between the two endpoints.
const RENAMED: [(&str, &str); 3] = [
    ("max_new_tokens", "max_tokens"),
    ("min_new_tokens", "min_tokens"),
    ("sampling_seed", "seed"),
];

/// The sampling parameters of a sample at `slot` of its group, with the names of `/generate` and Miles's defaults
/// (`no_stop_trim: true`, `spaces_between_special_tokens: false`). What is not set is left out.
pub fn sampling_params(sampling: &Sampling, slot: u32) -> Map<String, Value> {
    let mut params = Map::new();
    let mut put = |key: &str, value: Value| {
        params.insert(key.to_owned(), value);
    };
    put("temperature", json!(sampling.temperature));
    put("top_p", json!(sampling.top_p));
    put("top_k", json!(sampling.top_k));
    if let Some(min_p) = sampling.min_p {
        put("min_p", json!(min_p));
    }
    if let Some(tokens) = sampling.max_new_tokens {
        put("max_new_tokens", json!(tokens));
    }
    if let Some(tokens) = sampling.min_new_tokens {
        put("min_new_tokens", json!(tokens));
    }
    if !sampling.stop.is_empty() {
        put("stop", json!(sampling.stop));
    }
    if !sampling.stop_token_ids.is_empty() {
        put("stop_token_ids", json!(sampling.stop_token_ids));
    }
    put("skip_special_tokens", json!(sampling.skip_special_tokens));
    put("no_stop_trim", json!(true));
    put("spaces_between_special_tokens", json!(false));
    if let Some(seed) = sampling.sampling_seed {
        put("sampling_seed", json!(seed.saturating_add(i64::from(slot))));
    }
    params
}

/// What an agent gets as `request_kwargs`: `max_new_tokens` becomes `max_tokens`, `min_new_tokens` becomes `min_tokens`,
/// `sampling_seed` becomes `seed` (a destination that is there wins, the source always goes), then only fields of SGLang's chat
/// request stay, without `model`, `messages` and nulls.
pub fn chat_request_kwargs(params: &Map<String, Value>) -> Map<String, Value> {
    let mut kwargs = params.clone();
    for (from, to) in RENAMED {
        if let Some(value) = kwargs.shift_remove(from)
            && !kwargs.contains_key(to)
        {
            kwargs.insert(to.to_owned(), value);
        }
    }
    kwargs
        .retain(|key, value| !value.is_null() && CHAT_FIELDS.binary_search(&key.as_str()).is_ok());
    kwargs
}
