//! The body of `/generate`, and what it asks of the engine.
//!
//! Types are checked by [`super::contract`] before anything is read here, so reading cannot fail on them.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::batch::check_count;
use super::features::{
    check_session, first_text, is_truthy, no_hidden_states, no_logit_processor, no_lora,
    no_sampling_mask,
};
use super::ids::TokenInputs;
use super::prepared::{Prepared, Question, outputs_of};
use super::{PLACE, contract};
use crate::http::App;
use crate::http::reply::ApiError;
use crate::wire::sampling::SamplingParams;

/// The body as sent. Unknown fields are ignored; types are strict.
#[derive(Debug, Default)]
pub(super) struct GenerateRequest {
    pub(super) input_ids: Option<TokenInputs>,
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

pub(super) fn native(message: impl Into<String>) -> ApiError {
    ApiError::Native(message.into())
}

impl GenerateRequest {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Bool(true))
    }

    pub(super) fn is_stream(&self) -> bool {
        self.flag("stream")
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
            return Err(no_sampling_mask());
        }
        if self.get("watermark").is_some() {
            return Err(native(
                "request watermarking requires the server to enable --enable-watermark",
            ));
        }
        Ok(())
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

    fn params(&self, index: usize, is_list: bool) -> Result<SamplingParams, ApiError> {
        match self.of_request("sampling_params", index, is_list)? {
            None => Ok(SamplingParams::unset()),
            Some(params) => SamplingParams::deserialize(params)
                .map_err(|error| ApiError::Schema(error.to_string())),
        }
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
        let return_prompt_token_ids = self.flag("return_prompt_token_ids");
        let mut outputs = Vec::with_capacity(rids.len());
        let rids_of_prompts = rids.chunks_exact(samples);
        for (index, (prompt, rids)) in prompts.into_iter().zip(rids_of_prompts).enumerate() {
            let params = self.params(index, is_list)?;
            let logprobs = self.logprobs(app, index, is_list, &params)?;
            params.verify(app.vocab_size)?;
            check_session(self.get("session_params"))?;
            let rids = rids.iter().cloned();
            let of_prompt = outputs_of(app, Question::plain(prompt), &params, &logprobs, rids)?;
            outputs.extend(of_prompt.into_iter().map(|output| Prepared {
                return_prompt_token_ids,
                ..output
            }));
        }
        Ok(Plan {
            outputs,
            is_batch: is_list || samples > 1,
        })
    }
}
