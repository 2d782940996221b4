//! How many outputs a request asks for, and which value of a list is whose.

use std::sync::Arc;

use serde_json::Value;

use super::ids::TokenInputs;
use super::new_rid;
use super::request::{GenerateRequest, native};
use crate::http::reply::ApiError;

/// Most outputs of one request.
const MOST_OUTPUTS: usize = 65_536;

/// What Python says of a list that is too short.
pub(super) fn out_of_range() -> ApiError {
    ApiError::Uncaught("list index out of range".into())
}

impl GenerateRequest {
    /// The value of a field for one request of a batch: its own, or that of all.
    pub(super) fn of_request(
        &self,
        name: &str,
        index: usize,
        is_list: bool,
    ) -> Result<Option<&Value>, ApiError> {
        match self.get(name) {
            Some(Value::Array(values)) if is_list => {
                values.get(index).map(Some).ok_or_else(out_of_range)
            }
            Some(Value::Array(values)) => Ok(values.first()),
            value => Ok(value),
        }
    }

    /// Texts or lists of ids; none for a single prompt.
    pub(super) fn batch_size(&self) -> Option<usize> {
        match (&self.input_ids, self.get("text")) {
            (Some(TokenInputs::Batch(lists)), _) => Some(lists.len()),
            (None, Some(Value::Array(texts))) => Some(texts.len()),
            (Some(TokenInputs::One(_)) | None, _) => None,
        }
    }

    /// How many samples each prompt gets, and whether the request says it in a way that Python fails at.
    pub(super) fn samples(&self) -> Result<i64, ApiError> {
        let of = |params: &Value| match params.get("n") {
            None => Some(1),
            Some(n) => n.as_i64().or_else(|| n.as_u64().map(|_| i64::MAX)),
        };
        let asked = match self.get("sampling_params") {
            None => Some(1),
            Some(Value::Array(list)) => {
                let first = of(list.first().ok_or_else(out_of_range)?);
                if list.iter().any(|params| of(params) != first) {
                    return Err(native(
                        "The parallel_sample_num should be the same for all samples in sample params.",
                    ));
                }
                first
            }
            Some(params) => of(params),
        };
        asked.ok_or_else(|| {
            let message = "'>' not supported between instances of 'NoneType' and 'int'";
            ApiError::Uncaught(message.into())
        })
    }

    /// What cannot be combined, checked before anything else.
    pub(super) fn check_shape(&self, samples: i64) -> Result<(), ApiError> {
        if self.get("session_id").is_some() && self.get("session_params").is_some() {
            return Err(native("session_id and session_params cannot both be set."));
        }
        if samples <= 1 {
            return Ok(());
        }
        let listed = |name: &str| match (name, self.get(name)) {
            ("token_ids_logprob", Some(Value::Array(ids))) => {
                ids.first().is_some_and(Value::is_array)
            }
            (_, value) => value.is_some_and(Value::is_array),
        };
        let names = [
            "return_logprob",
            "logprob_start_len",
            "top_logprobs_num",
            "token_ids_logprob",
        ];
        match names.into_iter().find(|name| listed(name)) {
            Some(name) => {
                let message = format!("Cannot use list {name} with parallel_sample_num > 1");
                Err(native(message))
            }
            None => Ok(()),
        }
    }

    pub(super) fn rids(
        &self,
        is_list: bool,
        count: usize,
        samples: usize,
    ) -> Result<Vec<Arc<str>>, ApiError> {
        let mismatch = || {
            native("The specified rids length mismatch with the batch_size for batch processing.")
        };
        let made_up = || (0..count * samples).map(|_| new_rid()).collect();
        match self.get("rid") {
            Some(Value::Array(rids)) if (is_list || samples > 1) && rids.len() != count => {
                Err(mismatch())
            }
            _ if samples > 1 => Ok(made_up()),
            Some(Value::Array(rids)) if is_list => {
                let rids = rids.iter().filter_map(Value::as_str);
                Ok(rids.map(Into::into).collect())
            }
            Some(Value::Array(_)) => Err(ApiError::Uncaught("unhashable type: 'list'".into())),
            Some(Value::String(rid)) if !is_list => Ok(vec![rid.as_str().into()]),
            Some(Value::String(rid)) => {
                let numbered = (0..count).map(|index| format!("{rid}_{index}").into());
                Ok(numbered.collect())
            }
            _ => Ok(made_up()),
        }
    }
}

/// One request must not fill the memory.
pub(super) fn check_count(prompts: usize, samples: usize) -> Result<(), ApiError> {
    if prompts.saturating_mul(samples) <= MOST_OUTPUTS {
        return Ok(());
    }
    Err(native(format!(
        "the simulated engine gives at most {MOST_OUTPUTS} outputs to a request, got {prompts} prompts with n={samples}."
    )))
}
