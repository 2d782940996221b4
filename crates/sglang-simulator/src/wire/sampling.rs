//! `sampling_params` of `/generate`: types, defaults, and the checks with their texts.

use std::collections::BTreeMap;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Number, Value};

use crate::replies::StopRules;

/// One text or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// The parameters as sent. The order of the fields is that of the error text for an unknown one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SamplingParams {
    #[serde(default = "default_max_new_tokens")]
    pub(crate) max_new_tokens: Option<i64>,
    pub(crate) stop: Option<OneOrMany>,
    pub(crate) stop_token_ids: Option<Vec<Option<i64>>>,
    pub(crate) stop_regex: Option<OneOrMany>,
    pub(crate) temperature: Option<Number>,
    pub(crate) top_p: Option<Number>,
    pub(crate) top_k: Option<i64>,
    pub(crate) min_p: Option<Number>,
    pub(crate) frequency_penalty: Option<Number>,
    pub(crate) presence_penalty: Option<Number>,
    pub(crate) repetition_penalty: Option<Number>,
    pub(crate) min_new_tokens: Option<i64>,
    pub(crate) n: Option<i64>,
    pub(crate) json_schema: Option<String>,
    pub(crate) regex: Option<String>,
    pub(crate) ebnf: Option<String>,
    pub(crate) structural_tag: Option<String>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) skip_special_tokens: Option<bool>,
    pub(crate) spaces_between_special_tokens: Option<bool>,
    pub(crate) no_stop_trim: Option<bool>,
    pub(crate) stream_interval: Option<i64>,
    pub(crate) logit_bias: Option<BTreeMap<String, f64>>,
    pub(crate) sampling_seed: Option<i64>,
    pub(crate) custom_params: Option<Value>,
    pub(crate) beam_width: Option<i64>,
    pub(crate) watermark: Option<Value>,
    pub(crate) choice: Option<Value>,
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "an explicit null is something else: as many as fit"
)]
fn default_max_new_tokens() -> Option<i64> {
    Some(128)
}

/// Most samples of one request.
const MAX_SAMPLES: i64 = 4096;

/// A bias from which on nothing else is ever sampled.
const OVERWHELMING_BIAS: f64 = 50.0;

impl SamplingParams {
    /// The parameters of a request that sends none.
    pub(crate) fn unset() -> Self {
        Self {
            max_new_tokens: default_max_new_tokens(),
            ..Self::default()
        }
    }

    /// Checks values, in SGLang's order and words.
    pub(crate) fn verify(&self, vocab_size: usize) -> Result<(), String> {
        let float = |number: &Option<Number>, default: f64| {
            number.as_ref().and_then(Number::as_f64).unwrap_or(default)
        };
        let shown =
            |number: &Option<Number>| number.as_ref().map_or_else(String::new, Number::to_string);
        if float(&self.temperature, 1.0) < 0.0 {
            let got = shown(&self.temperature);
            return Err(format!(
                "temperature must be a non-negative finite number, got {got}."
            ));
        }
        let top_p = float(&self.top_p, 1.0);
        if top_p <= 0.0 || top_p > 1.0 {
            return Err(format!(
                "top_p must be in (0, 1], got {}.",
                shown(&self.top_p)
            ));
        }
        if !(0.0..=1.0).contains(&float(&self.min_p, 0.0)) {
            return Err(format!(
                "min_p must be in [0, 1], got {}.",
                shown(&self.min_p)
            ));
        }
        if let Some(top_k) = self.top_k.filter(|top_k| *top_k < 1 && *top_k != -1) {
            return Err(format!(
                "top_k must be -1 (disable) or at least 1, got {top_k}."
            ));
        }
        for (name, value) in [
            ("frequency_penalty", &self.frequency_penalty),
            ("presence_penalty", &self.presence_penalty),
        ] {
            if !(-2.0..=2.0).contains(&float(value, 0.0)) {
                return Err(format!("{name} must be in [-2, 2], got {}.", shown(value)));
            }
        }
        let repetition = float(&self.repetition_penalty, 1.0);
        if repetition <= 0.0 || repetition > 2.0 {
            let got = shown(&self.repetition_penalty);
            return Err(format!(
                "repetition_penalty must be in (0, 2] (1.0 = no penalty), got {got}."
            ));
        }
        self.verify_counts()?;
        for token in self.logit_bias.iter().flatten().map(|(token, _)| token) {
            if token.parse::<usize>().map_or(true, |id| id >= vocab_size) {
                return Err(format!(
                    "logit_bias must has keys in [0, {}], got {token}.",
                    vocab_size - 1
                ));
            }
        }
        self.verify_grammar()
    }

    fn verify_counts(&self) -> Result<(), String> {
        let least = self.min_new_tokens.unwrap_or(0);
        if least < 0 {
            return Err(format!(
                "min_new_tokens must be in [0, max_new_tokens], got {least}."
            ));
        }
        if let Some(n) = self.n.filter(|n| *n > MAX_SAMPLES) {
            return Err(format!(
                "the simulated engine gives at most {MAX_SAMPLES} samples, got n={n}."
            ));
        }
        match self.max_new_tokens {
            Some(most) if most < 0 => {
                Err(format!("max_new_tokens must be at least 0, got {most}."))
            }
            Some(most) if least > most => Err(format!(
                "min_new_tokens must be in [0, max_new_tokens({most})], got {least}."
            )),
            _ => Ok(()),
        }
    }

    fn verify_grammar(&self) -> Result<(), String> {
        let grammars = [
            self.json_schema.is_some(),
            self.regex.is_some(),
            self.ebnf.is_some(),
        ];
        if grammars.iter().filter(|given| **given).count() > 1 {
            return Err("Only one of regex, json_schema, or ebnf can be set.".into());
        }
        let unsupported = [
            ("regex", self.regex.is_some()),
            ("ebnf", self.ebnf.is_some()),
            ("structural_tag", self.structural_tag.is_some()),
            ("choice", self.choice.is_some()),
            ("beam_width", self.beam_width.is_some_and(|width| width > 1)),
        ];
        match unsupported.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(format!("the simulated engine does not support {name}.")),
            None => Ok(()),
        }
    }

    /// How many samples are asked for.
    pub(crate) fn samples(&self) -> usize {
        self.n
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(1)
            .max(1)
    }

    /// The temperature; none when the most likely token is always taken.
    pub(crate) fn temperature(&self) -> Option<f64> {
        let temperature = self
            .temperature
            .as_ref()
            .and_then(Number::as_f64)
            .unwrap_or(1.0);
        Some(temperature).filter(|temperature| *temperature >= 1e-6 && self.top_k != Some(1))
    }

    /// Where the output ends, when `room` tokens fit at most.
    pub(crate) fn stop_rules(&self, room: usize) -> Result<StopRules, String> {
        let stop_regex = self
            .stop_regex
            .clone()
            .map(OneOrMany::into_vec)
            .unwrap_or_default();
        let stop_regex = stop_regex
            .iter()
            .map(|pattern| Regex::new(pattern).map_err(|error| format!("stop_regex: {error}")))
            .collect::<Result<_, _>>()?;
        let ids = self.stop_token_ids.iter().flatten().flatten();
        Ok(StopRules {
            max_new_tokens: self
                .max_new_tokens
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(room),
            min_new_tokens: self
                .min_new_tokens
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(0),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            stop_token_ids: ids.filter_map(|id| u32::try_from(*id).ok()).collect(),
            stop: self
                .stop
                .clone()
                .map(OneOrMany::into_vec)
                .unwrap_or_default(),
            stop_regex,
        })
    }

    /// The token that the bias forces, if it outweighs all others.
    pub(crate) fn forced_token(&self) -> Option<u32> {
        let (token, bias) = self
            .logit_bias
            .iter()
            .flatten()
            .max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        (*bias >= OVERWHELMING_BIAS)
            .then(|| token.parse().ok())
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(json: &str) -> String {
        let params: SamplingParams = serde_json::from_str(json).unwrap();
        params.verify(448).unwrap_err()
    }

    #[test]
    fn values_out_of_bounds_are_refused_in_sglangs_words() {
        assert_eq!(
            verify(r#"{"temperature": -1}"#),
            "temperature must be a non-negative finite number, got -1."
        );
        assert_eq!(verify(r#"{"top_p": 0}"#), "top_p must be in (0, 1], got 0.");
        assert_eq!(
            verify(r#"{"top_k": 0}"#),
            "top_k must be -1 (disable) or at least 1, got 0."
        );
        assert_eq!(
            verify(r#"{"max_new_tokens": 3, "min_new_tokens": 4}"#),
            "min_new_tokens must be in [0, max_new_tokens(3)], got 4."
        );
        assert_eq!(
            verify(r#"{"logit_bias": {"448": 1.0}}"#),
            "logit_bias must has keys in [0, 447], got 448."
        );
    }

    #[test]
    fn absent_and_null_token_counts_differ() {
        let absent: SamplingParams = serde_json::from_str("{}").unwrap();
        let null: SamplingParams = serde_json::from_str(r#"{"max_new_tokens": null}"#).unwrap();
        assert_eq!(absent.stop_rules(9).unwrap().max_new_tokens, 128);
        assert_eq!(null.stop_rules(9).unwrap().max_new_tokens, 9);
    }
}
