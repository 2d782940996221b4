//! The body of `/generate`, and what it asks of the engine.
//!
//! Types are checked by [`super::contract`] before anything is read here, so reading cannot fail on them.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::features::{
    first_text, is_truthy, no_hidden_states, no_logit_processor, no_lora, no_session,
};
use super::ids::TokenInputs;
use super::prepared::{Prepared, new_rid, outputs_of};
use super::{PLACE, contract};
use crate::http::App;
use crate::http::reply::ApiError;
use crate::wire::logprobs::LogprobOptions;
use crate::wire::sampling::SamplingParams;
use crate::wire::text::TextOptions;

/// The body as sent. Unknown fields are ignored; types are strict.
#[derive(Debug, Default)]
pub(super) struct GenerateRequest {
    input_ids: Option<TokenInputs>,
    /// All other fields.
    fields: Map<String, Value>,
}

impl<'de> Deserialize<'de> for GenerateRequest {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Body;

        impl<'de> Visitor<'de> for Body {
            type Value = GenerateRequest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut body: A,
            ) -> Result<GenerateRequest, A::Error> {
                let mut request = GenerateRequest::default();
                while let Some(name) = body.next_key::<String>()? {
                    if name == "input_ids" {
                        request.input_ids = body.next_value()?;
                    } else {
                        let value = body.next_value()?;
                        request.fields.insert(name, value);
                    }
                }
                Ok(request)
            }
        }

        deserializer.deserialize_map(Body)
    }
}

/// Everything that a request asks for, checked.
pub(super) struct Plan {
    pub(super) outputs: Vec<Prepared>,
    /// Whether the answer is a list.
    pub(super) is_batch: bool,
}

/// Reads the body and checks the types of its fields.
pub(super) fn parse(body: &[u8]) -> Result<GenerateRequest, ApiError> {
    if body.is_empty() {
        return Err(PLACE.missing());
    }
    match serde_json::from_slice::<GenerateRequest>(body) {
        Ok(request) => {
            contract::check(&request.fields)?;
            Ok(request)
        }
        Err(error) if error.is_data() => match serde_json::from_slice(body) {
            // some prompt of ids is none: the words for that
            Ok(Value::Object(fields)) => {
                contract::check(&fields)?;
                Err(ApiError::Schema(error.to_string()))
            }
            Ok(other) => Err(PLACE.no_object(&other)),
            Err(error) => Err(PLACE.no_json(body, &error)),
        },
        Err(error) => Err(PLACE.no_json(body, &error)),
    }
}

fn native(message: impl Into<String>) -> ApiError {
    ApiError::Native(message.into())
}

/// What Python says of a list that is too short.
fn out_of_range() -> ApiError {
    ApiError::Uncaught("list index out of range".into())
}

impl GenerateRequest {
    fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Bool(true))
    }

    pub(super) fn is_stream(&self) -> bool {
        self.flag("stream")
    }

    /// The value of a field for one request of a batch: its own, or that of all.
    fn of_request(
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
    fn batch_size(&self) -> Option<usize> {
        match (&self.input_ids, self.get("text")) {
            (Some(TokenInputs::Batch(lists)), _) => Some(lists.len()),
            (None, Some(Value::Array(texts))) => Some(texts.len()),
            (Some(TokenInputs::One(_)) | None, _) => None,
        }
    }

    /// How many samples each prompt gets, and whether the request says it in a way that Python fails at.
    fn samples(&self) -> Result<i64, ApiError> {
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
    fn check_shape(&self, samples: i64) -> Result<(), ApiError> {
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

    /// What a server without these features says.
    fn check_features(&self) -> Result<(), ApiError> {
        if self.get("max_thinking_tokens").is_some() {
            return Err(native(
                "max_thinking_tokens requires the server to be launched with --enable-strict-thinking",
            ));
        }
        let rank = self
            .get("routed_dp_rank")
            .or_else(|| self.get("data_parallel_rank"));
        if let Some(rank) = rank.filter(|rank| rank.as_i64() != Some(0)) {
            return Err(native(format!("routed_dp_rank={rank} out of range [0, 1)")));
        }
        if let Some(adapter) = first_text(self.get("lora_path")) {
            return Err(no_lora(adapter));
        }
        if self.get("return_hidden_states").is_some_and(is_truthy) {
            return Err(no_hidden_states());
        }
        if first_text(self.get("custom_logit_processor")).is_some() {
            return Err(no_logit_processor());
        }
        if self.get("sampling_logprobs_mode").is_some() && !self.flag("return_sampling_mask") {
            return Err(native(
                "sampling_logprobs_mode can only be set when return_sampling_mask=true.",
            ));
        }
        if self.get("return_sampling_mask").is_some_and(is_truthy) {
            return Err(native(
                "the simulated engine does not support return_sampling_mask.",
            ));
        }
        if self.get("watermark").is_some() {
            return Err(native(
                "request watermarking requires the server to enable --enable-watermark",
            ));
        }
        Ok(())
    }

    fn check_session(&self) -> Result<(), ApiError> {
        match self
            .get("session_params")
            .and_then(|params| params.get("id"))
        {
            None | Some(Value::Null) => Ok(()),
            Some(id) => Err(no_session(id)),
        }
    }

    fn prompts(&mut self, app: &App) -> Result<Vec<Arc<[u32]>>, ApiError> {
        match self.input_ids.take() {
            Some(TokenInputs::One(ids)) if ids.is_empty() && self.get("text").is_none() => {
                return Err(native("input_ids cannot be empty."));
            }
            Some(TokenInputs::One(ids)) => return Ok(vec![ids.into()]),
            Some(TokenInputs::Batch(lists)) => {
                return Ok(lists.into_iter().map(Into::into).collect());
            }
            None => {}
        }
        let texts = match self.fields.get("text") {
            Some(Value::String(text)) => vec![text.as_str()],
            Some(Value::Array(texts)) => texts.iter().filter_map(Value::as_str).collect(),
            _ if self.get("input_embeds").is_some() => {
                return Err(native(
                    "input_embeds is provided while disable_radix_cache is False. Please add `--disable-radix-cache` when you launch \
                     the server if you want to use input_embeds as inputs.",
                ));
            }
            _ => {
                return Err(native(
                    "Either text, input_ids or input_embeds should be provided.",
                ));
            }
        };
        texts
            .into_iter()
            .map(|text| {
                let ids = app.tokenizer.encode(text);
                ids.map(Into::into)
                    .map_err(|error| native(error.to_string()))
            })
            .collect()
    }

    fn rids(&self, is_list: bool, count: usize, samples: usize) -> Result<Vec<Arc<str>>, ApiError> {
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

    fn params(&self, index: usize, is_list: bool) -> Result<SamplingParams, ApiError> {
        match self.of_request("sampling_params", index, is_list)? {
            None => Ok(SamplingParams::unset()),
            Some(params) => SamplingParams::deserialize(params)
                .map_err(|error| ApiError::Schema(error.to_string())),
        }
    }

    fn logprobs(
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

    /// Checks everything and plans the outputs.
    pub(super) fn prepare(mut self, app: &App) -> Result<Plan, ApiError> {
        let is_list = self.batch_size().is_some();
        let asked = self.samples()?;
        self.check_shape(asked)?;
        let prompts = self.prompts(app)?;
        let samples = usize::try_from(asked).unwrap_or(1).max(1);
        check_count(prompts.len(), samples)?;
        let rids = self.rids(is_list, prompts.len(), samples)?;
        self.check_features()?;
        let mut outputs = Vec::with_capacity(rids.len());
        for (index, prompt) in prompts.into_iter().enumerate() {
            let params = self.params(index, is_list)?;
            let logprobs = self.logprobs(app, index, is_list, &params)?;
            params.verify(app.vocab_size)?;
            self.check_session()?;
            for (sample, output) in outputs_of(app, &prompt, &params, samples)?
                .into_iter()
                .enumerate()
            {
                outputs.push(Prepared {
                    rid: rids[index * samples + sample].clone(),
                    prompt: prompt.clone(),
                    output,
                    logprobs: logprobs.clone(),
                    text: TextOptions {
                        skip_special_tokens: params.skip_special_tokens.unwrap_or(true),
                        no_stop_trim: params.no_stop_trim.unwrap_or(false),
                    },
                    return_prompt_token_ids: self.flag("return_prompt_token_ids"),
                    leads_samples: samples > 1 && sample == 0,
                });
            }
        }
        Ok(Plan {
            outputs,
            is_batch: is_list || samples > 1,
        })
    }
}

/// One request must not fill the memory.
fn check_count(prompts: usize, samples: usize) -> Result<(), ApiError> {
    if prompts.saturating_mul(samples) <= MOST_OUTPUTS {
        return Ok(());
    }
    Err(native(format!(
        "the simulated engine gives at most {MOST_OUTPUTS} outputs to a request, got {prompts} prompts with n={samples}."
    )))
}

/// Most outputs of one request.
const MOST_OUTPUTS: usize = 65_536;
