//! The fields of a request to an OpenAI route, whose types have been checked: read as pydantic reads them, and what they ask for.

use serde_json::{Map, Number, Value};

use crate::http::generate::{
    check_session, first_text, no_hidden_states, no_logit_processor, no_lora, no_sampling_mask,
};
use crate::http::pydantic;
use crate::http::reply::ApiError;
use crate::wire::sampling::{OneOrMany, SamplingParams};

/// What a request asks for that names no model.
const DEFAULT_MODEL: &str = "default";

/// Fields of a body.
#[derive(Debug)]
pub(in crate::http) struct Fields(pub(in crate::http) Map<String, Value>);

impl Fields {
    pub(in crate::http) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(in crate::http) fn flag(&self, name: &str) -> bool {
        is_true(self.0.get(name))
    }

    /// Whether it says no, where silence means yes.
    pub(in crate::http) fn flag_is_false(&self, name: &str) -> bool {
        self.0.get(name).and_then(pydantic::boolean) == Some(false)
    }

    /// A flag of `stream_options`.
    pub(in crate::http) fn includes_usage(&self) -> bool {
        let options = self.get("stream_options");
        is_true(options.and_then(|options| options.get("include_usage")))
    }

    /// An integer; one that is too large is the largest.
    pub(in crate::http) fn integer(&self, name: &str) -> Option<i64> {
        let number = pydantic::integer(self.get(name)?)?;
        Some(number.as_i64().unwrap_or(i64::MAX))
    }

    pub(in crate::http) fn number(&self, name: &str) -> Option<Number> {
        pydantic::float(self.get(name)?)
    }

    pub(in crate::http) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    fn texts(&self, name: &str) -> Option<OneOrMany> {
        serde_json::from_value(self.get(name)?.clone()).ok()
    }

    pub(in crate::http) fn integers(&self, name: &str) -> Option<Vec<i64>> {
        let items = self.get(name)?.as_array()?;
        let read = items.iter().map(|item| pydantic::integer(item)?.as_i64());
        read.collect()
    }

    fn biases(&self) -> Option<Map<String, Value>> {
        let biases = self.get("logit_bias")?.as_object()?;
        let read = biases
            .iter()
            .map(|(token, bias)| Some((token.clone(), pydantic::float(bias)?.into())));
        read.collect()
    }

    /// The name that the answer repeats.
    pub(in crate::http) fn model(&self) -> &str {
        self.text("model").unwrap_or(DEFAULT_MODEL)
    }

    /// The parameters that all routes have in common; `limit` is the most tokens.
    pub(in crate::http) fn sampling(&self, limit: Option<i64>) -> Result<SamplingParams, ApiError> {
        let watermark = self.get("watermark").cloned().map(serde_json::from_value);
        let of_watermark = |_| ApiError::Native("watermark contains unknown fields".into());
        let text = |name: &str| self.text(name).map(str::to_owned);
        Ok(SamplingParams {
            max_new_tokens: limit,
            stop: self.texts("stop"),
            stop_token_ids: self.integers("stop_token_ids"),
            stop_regex: self.texts("stop_regex"),
            temperature: self.number("temperature"),
            top_p: self.number("top_p"),
            top_k: self.integer("top_k"),
            min_p: self.number("min_p"),
            frequency_penalty: self.number("frequency_penalty"),
            presence_penalty: self.number("presence_penalty"),
            repetition_penalty: self.number("repetition_penalty"),
            min_new_tokens: self.integer("min_tokens"),
            n: self.integer("n"),
            regex: text("regex"),
            ebnf: text("ebnf"),
            ignore_eos: Some(self.flag("ignore_eos")),
            skip_special_tokens: Some(!self.flag_is_false("skip_special_tokens")),
            no_stop_trim: Some(self.flag("no_stop_trim")),
            logit_bias: self.biases(),
            sampling_seed: self.get("seed").and_then(pydantic::integer),
            watermark: watermark.transpose().map_err(of_watermark)?,
            ..SamplingParams::default()
        })
    }

    /// What `response_format` forces, where `schema_of` finds the schema of its kind `json_schema`.
    pub(in crate::http) fn constrain(
        &self,
        params: &mut SamplingParams,
        schema_of: fn(&Value) -> Result<&Value, ApiError>,
    ) -> Result<(), ApiError> {
        let Some(format) = self.get("response_format") else {
            return Ok(());
        };
        match format["type"].as_str() {
            Some("json_object") => params.json_schema = Some("{\"type\": \"object\"}".into()),
            Some("structural_tag") => params.structural_tag = Some(format.to_string()),
            Some("json_schema") => params.json_schema = Some(schema_of(format)?.to_string()),
            _ => {}
        }
        Ok(())
    }

    /// What a server without these features says.
    pub(in crate::http) fn check_features(&self) -> Result<(), ApiError> {
        let of_model = self
            .model()
            .split_once(':')
            .map(|(_, adapter)| adapter.trim());
        let of_model = of_model.filter(|adapter| !adapter.is_empty());
        if let Some(adapter) = of_model.or_else(|| first_text(self.get("lora_path"))) {
            return Err(no_lora(adapter));
        }
        let hidden = self.get("return_hidden_states");
        if hidden.is_some_and(|mode| mode == "last" || is_true(Some(mode))) {
            return Err(no_hidden_states());
        }
        if first_text(self.get("custom_logit_processor")).is_some() {
            return Err(no_logit_processor());
        }
        if self.flag("return_sampling_mask") {
            return Err(no_sampling_mask());
        }
        check_session(self.get("session_params"))
    }
}

fn is_true(value: Option<&Value>) -> bool {
    value.and_then(pydantic::boolean).unwrap_or(false)
}
