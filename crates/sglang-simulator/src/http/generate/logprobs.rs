//! Which log-probabilities a request asks for.

use serde_json::Value;

use super::batch::out_of_range;
use super::request::{GenerateRequest, native};
use crate::http::App;
use crate::http::reply::ApiError;
use crate::wire::logprobs::LogprobOptions;
use crate::wire::sampling::SamplingParams;

impl GenerateRequest {
    pub(super) fn logprobs(
        &self,
        app: &App,
        index: usize,
        is_list: bool,
        params: &SamplingParams,
    ) -> Result<LogprobOptions, ApiError> {
        let number = |name: &str, default: i64| {
            let value = self.of_request(name, index, is_list)?;
            Ok::<_, ApiError>(value.and_then(Value::as_i64).unwrap_or(default))
        };
        let enabled = self.of_request("return_logprob", index, is_list)?;
        let start = number("logprob_start_len", -1)?;
        let top = number("top_logprobs_num", 0)?;
        let enabled = enabled == Some(&Value::Bool(true));
        Ok(LogprobOptions {
            enabled,
            prompt_from: usize::try_from(start).ok(),
            top: usize::try_from(top).unwrap_or(0),
            token_ids: self.token_ids(app, index, is_list)?,
            text: self.flag("return_text_in_logprobs"),
            shaping: params.shaping(app.tokenizer.eos_ids()),
        }
        .only_if_enabled())
    }

    /// The tokens whose log-probabilities are asked for.
    fn token_ids(
        &self,
        app: &App,
        index: usize,
        is_list: bool,
    ) -> Result<Option<Vec<u32>>, ApiError> {
        let Some(Value::Array(ids)) = self.get("token_ids_logprob") else {
            return Ok(None);
        };
        let ids = match ids.first() {
            None => return Ok(None),
            Some(Value::Array(_)) if !is_list => {
                return Err(native("token_ids_logprob must be a flat list of integers."));
            }
            Some(Value::Array(_)) => {
                let of_request = ids.get(index).ok_or_else(out_of_range)?;
                of_request.as_array().map_or(&[][..], Vec::as_slice)
            }
            Some(_) => ids,
        };
        if ids.is_empty() {
            return Ok(None);
        }
        let vocabulary = app.vocab_size;
        let read = ids.iter().map(|id| {
            let known = id.as_u64().and_then(|id| u32::try_from(id).ok());
            known.filter(|id| (*id as usize) < vocabulary).ok_or_else(|| {
                native(format!(
                    "token_ids_logprob contains out-of-vocabulary token id {id}; valid range is [0, {vocabulary})."
                ))
            })
        });
        read.collect::<Result<_, _>>().map(Some)
    }
}
