//! The body of `/generate`, and what it asks of the engine.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{self, SeqAccess, Visitor};
use serde_json::Value;

use super::PLACE;
use super::prepared::{Prepared, new_rid, outputs_of};
use crate::http::App;
use crate::http::reply::ApiError;
use crate::wire::logprobs::LogprobOptions;
use crate::wire::sampling::SamplingParams;
use crate::wire::text::TextOptions;

/// The body as sent. Unknown fields are ignored; types are strict.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct GenerateRequest {
    text: Option<Inputs<String>>,
    input_ids: Option<TokenInputs>,
    input_embeds: Option<Value>,
    sampling_params: Option<Value>,
    rid: Option<Inputs<String>>,
    return_logprob: Option<Inputs<bool>>,
    logprob_start_len: Option<Inputs<i64>>,
    top_logprobs_num: Option<Inputs<i64>>,
    token_ids_logprob: Option<TokenInputs>,
    return_text_in_logprobs: Option<bool>,
    stream: Option<bool>,
    return_prompt_token_ids: Option<bool>,
    #[serde(rename = "priority")]
    _priority: Option<i64>,
}

/// One value, or one per request of a batch.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Inputs<T> {
    Batch(Vec<T>),
    One(T),
}

impl<T: Clone> Inputs<T> {
    fn at(&self, index: usize) -> Option<T> {
        match self {
            Self::One(value) => Some(value.clone()),
            Self::Batch(values) => values.get(index).cloned(),
        }
    }
}

/// Token ids, or lists of them; read without a detour, since prompts are long.
#[derive(Debug)]
enum TokenInputs {
    One(Vec<u32>),
    Batch(Vec<Vec<u32>>),
}

impl<'de> Deserialize<'de> for TokenInputs {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ids;

        #[derive(Deserialize)]
        #[serde(untagged)]
        enum First {
            Id(u32),
            Ids(Vec<u32>),
        }

        impl<'de> Visitor<'de> for Ids {
            type Value = TokenInputs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of token ids, or a list of such lists")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<TokenInputs, A::Error> {
                match list.next_element::<First>()? {
                    None => Ok(TokenInputs::One(Vec::new())),
                    Some(First::Id(first)) => {
                        let mut ids = vec![first];
                        while let Some(id) = list.next_element()? {
                            ids.push(id);
                        }
                        Ok(TokenInputs::One(ids))
                    }
                    Some(First::Ids(first)) => {
                        let mut lists = vec![first];
                        while let Some(ids) = list.next_element()? {
                            lists.push(ids);
                        }
                        Ok(TokenInputs::Batch(lists))
                    }
                }
            }
        }

        deserializer.deserialize_seq(Ids)
    }
}

/// Reads the body.
pub(super) fn parse(body: &[u8]) -> Result<GenerateRequest, ApiError> {
    if body.is_empty() {
        return Err(PLACE.missing());
    }
    serde_json::from_slice(body).map_err(|error| {
        if error.is_data() {
            ApiError::Schema(without_position(&error))
        } else {
            PLACE.no_json(body, &error)
        }
    })
}

fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ")
        .map_or(text.clone(), |(text, _)| text.to_owned())
}

impl GenerateRequest {
    pub(super) fn is_stream(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    fn batch_size(&self) -> Option<usize> {
        match (&self.input_ids, &self.text) {
            (Some(TokenInputs::Batch(lists)), _) => Some(lists.len()),
            (None, Some(Inputs::Batch(texts))) => Some(texts.len()),
            (Some(TokenInputs::One(_)) | None, _) => None,
        }
    }

    /// Whether the answer is a list.
    pub(super) fn is_batch(&self) -> bool {
        let first = match &self.sampling_params {
            Some(Value::Array(list)) => list.first(),
            other => other.as_ref(),
        };
        let samples = first
            .and_then(|params| params.get("n"))
            .and_then(Value::as_i64)
            .unwrap_or(1);
        self.batch_size().is_some() || samples > 1
    }

    fn prompts(&mut self, app: &App) -> Result<Vec<Arc<[u32]>>, ApiError> {
        if let Some(ids) = self.input_ids.take() {
            let lists = match ids {
                TokenInputs::One(ids) => vec![ids],
                TokenInputs::Batch(lists) => lists,
            };
            return Ok(lists.into_iter().map(Into::into).collect());
        }
        let texts = match self.text.take() {
            Some(Inputs::One(text)) => vec![text],
            Some(Inputs::Batch(texts)) => texts,
            None if self.input_embeds.is_some() => {
                return Err(ApiError::Native(
                    "the simulated engine does not support input_embeds.".into(),
                ));
            }
            None => {
                return Err(ApiError::Native(
                    "Either text, input_ids or input_embeds should be provided.".into(),
                ));
            }
        };
        texts
            .iter()
            .map(|text| {
                app.tokenizer
                    .encode(text)
                    .map(Into::into)
                    .map_err(|error| ApiError::Native(error.to_string()))
            })
            .collect()
    }

    fn rids(&self, is_list: bool, count: usize, samples: usize) -> Result<Vec<Arc<str>>, ApiError> {
        if samples > 1 {
            return Ok((0..count * samples).map(|_| new_rid()).collect());
        }
        match &self.rid {
            None => Ok((0..count).map(|_| new_rid()).collect()),
            Some(Inputs::One(rid)) if !is_list => Ok(vec![rid.as_str().into()]),
            Some(Inputs::One(rid)) => Ok((0..count)
                .map(|index| format!("{rid}_{index}").into())
                .collect()),
            Some(Inputs::Batch(rids)) if rids.len() == count => {
                Ok(rids.iter().map(|rid| rid.as_str().into()).collect())
            }
            Some(Inputs::Batch(_)) => Err(ApiError::Native(
                "The specified rids length mismatch with the batch_size for batch processing."
                    .into(),
            )),
        }
    }

    fn params(&self, index: usize) -> Result<SamplingParams, ApiError> {
        let params = match &self.sampling_params {
            None | Some(Value::Null) => return Ok(SamplingParams::unset()),
            Some(Value::Array(list)) => list.get(index).unwrap_or(&Value::Null),
            Some(params) => params,
        };
        if params.is_null() {
            return Ok(SamplingParams::unset());
        }
        SamplingParams::deserialize(params).map_err(|error| ApiError::Schema(error.to_string()))
    }

    fn logprobs(&self, index: usize, params: &SamplingParams) -> LogprobOptions {
        let start = self
            .logprob_start_len
            .as_ref()
            .and_then(|start| start.at(index))
            .unwrap_or(-1);
        let top = self
            .top_logprobs_num
            .as_ref()
            .and_then(|top| top.at(index))
            .unwrap_or(0);
        let token_ids = match &self.token_ids_logprob {
            Some(TokenInputs::One(ids)) => Some(ids.clone()),
            Some(TokenInputs::Batch(lists)) => lists.get(index).cloned(),
            None => None,
        };
        LogprobOptions {
            enabled: self
                .return_logprob
                .as_ref()
                .and_then(|wanted| wanted.at(index))
                .unwrap_or(false),
            prompt_from: usize::try_from(start).ok(),
            top: usize::try_from(top).unwrap_or(0),
            token_ids,
            text: self.return_text_in_logprobs.unwrap_or(false),
            temperature: params.temperature().unwrap_or(1.0),
        }
    }

    /// Checks everything and plans the outputs.
    pub(super) fn prepare(mut self, app: &App) -> Result<Vec<Prepared>, ApiError> {
        let is_list = self.batch_size().is_some();
        let prompts = self.prompts(app)?;
        let params = (0..prompts.len())
            .map(|index| self.params(index))
            .collect::<Result<Vec<_>, _>>()?;
        let samples = params.first().map_or(1, SamplingParams::samples);
        let rids = self.rids(is_list, prompts.len(), samples)?;
        let mut prepared = Vec::with_capacity(rids.len());
        for (index, (prompt, params)) in prompts.into_iter().zip(params).enumerate() {
            params.verify(app.vocab_size).map_err(ApiError::Native)?;
            for (sample, output) in outputs_of(app, &prompt, &params, samples)?
                .into_iter()
                .enumerate()
            {
                prepared.push(Prepared {
                    rid: rids[index * samples + sample].clone(),
                    prompt: prompt.clone(),
                    output,
                    logprobs: self.logprobs(index, &params).only_if_enabled(),
                    text: TextOptions {
                        skip_special_tokens: params.skip_special_tokens.unwrap_or(true),
                        no_stop_trim: params.no_stop_trim.unwrap_or(false),
                    },
                    return_prompt_token_ids: self.return_prompt_token_ids.unwrap_or(false),
                    leads_samples: samples > 1 && sample == 0,
                });
            }
        }
        Ok(prepared)
    }
}
