//! `sampling_params` of `/generate`: types, defaults, and what they mean to the model. [`super::sampling_checks`] refuses bad values.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::logprobs::LogprobOptions;
use super::sampling_checks::{Refused, python_int, python_regex};
use super::text::TextOptions;
use crate::replies::{ForcedText, Shaping, StopRules};

/// One text or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }
}

/// The parameters as sent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SamplingParams {
    #[serde(default = "default_max_new_tokens")]
    pub(crate) max_new_tokens: Option<i64>,
    pub(crate) stop: Option<OneOrMany>,
    pub(crate) stop_token_ids: Option<Vec<i64>>,
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
    pub(crate) logit_bias: Option<Map<String, Value>>,
    pub(crate) sampling_seed: Option<Number>,
    pub(crate) custom_params: Option<Value>,
    pub(crate) beam_width: Option<i64>,
    pub(crate) watermark: Option<Watermark>,
    /// A null is something else than its absence.
    #[serde(deserialize_with = "given")]
    pub(crate) choice: Option<Value>,
}

/// A watermark's configuration; none is ever made.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Watermark {
    pub(crate) enabled: Option<bool>,
    pub(crate) key: Option<String>,
    pub(crate) context_window: Option<i64>,
}

fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "an explicit null is something else: as many as fit"
)]
fn default_max_new_tokens() -> Option<i64> {
    Some(128)
}

/// Temperatures below it take the likeliest token.
const LEAST_TEMPERATURE: f64 = 1e-6;

impl SamplingParams {
    /// The parameters of a request that sends none.
    pub(crate) fn unset() -> Self {
        Self {
            max_new_tokens: default_max_new_tokens(),
            ..Self::default()
        }
    }

    /// How many samples are asked for.
    pub(crate) fn samples(&self) -> usize {
        let asked = self.n.and_then(|n| usize::try_from(n).ok());
        asked.unwrap_or(1).max(1)
    }

    /// The temperature; none when the most likely token is always taken.
    fn temperature(&self) -> Option<f64> {
        let temperature = float(self.temperature.as_ref(), 1.0);
        Some(temperature)
            .filter(|temperature| *temperature >= LEAST_TEMPERATURE && self.top_k != Some(1))
    }

    /// What is asked of the probabilities, where some tokens end every output.
    pub(crate) fn shaping(&self, eos_ids: &[u32]) -> Shaping {
        let least = self.min_new_tokens.and_then(|n| usize::try_from(n).ok());
        let top_k = self.top_k.and_then(|top_k| usize::try_from(top_k).ok());
        let biases = self.logit_bias.iter().flatten();
        Shaping {
            temperature: self.temperature(),
            top_k: top_k.unwrap_or(usize::MAX),
            top_p: float(self.top_p.as_ref(), 1.0),
            min_p: float(self.min_p.as_ref(), 0.0),
            frequency_penalty: float(self.frequency_penalty.as_ref(), 0.0),
            presence_penalty: float(self.presence_penalty.as_ref(), 0.0),
            repetition_penalty: float(self.repetition_penalty.as_ref(), 1.0),
            logit_bias: biases
                .filter_map(|(token, bias)| {
                    let token = u32::try_from(python_int(token)?).ok()?;
                    Some((token, bias.as_f64()?))
                })
                .collect(),
            withheld: self.stop_ids().chain(eos_ids.iter().copied()).collect(),
            withheld_until: least.unwrap_or(0),
        }
    }

    fn stop_ids(&self) -> impl Iterator<Item = u32> + '_ {
        let ids = self.stop_token_ids.iter().flatten();
        ids.filter_map(|id| u32::try_from(*id).ok())
    }

    /// How the output's tokens become text.
    pub(crate) fn text_options(&self) -> TextOptions {
        TextOptions {
            skip_special_tokens: self.skip_special_tokens.unwrap_or(true),
            no_stop_trim: self.no_stop_trim.unwrap_or(false),
        }
    }

    /// Log-probabilities of the output with the text of its tokens, and of the `top` most likely ones, as the OpenAI routes have them.
    pub(crate) fn output_logprobs(
        &self,
        enabled: bool,
        top: Option<i64>,
        eos_ids: &[u32],
    ) -> LogprobOptions {
        let options = LogprobOptions {
            enabled,
            prompt_from: None,
            top: top.and_then(|top| usize::try_from(top).ok()).unwrap_or(0),
            token_ids: None,
            text: true,
            shaping: self.shaping(eos_ids),
        };
        options.only_if_enabled()
    }

    /// The seed; one out of range has been refused.
    pub(crate) fn seed(&self) -> Option<i64> {
        self.sampling_seed.as_ref().and_then(Number::as_i64)
    }

    /// Where the output ends, when `room` tokens fit at most.
    pub(crate) fn stop_rules(&self, room: usize) -> StopRules {
        let texts = |texts: &Option<OneOrMany>| {
            let texts = texts.as_ref().map(OneOrMany::as_slice);
            texts.unwrap_or_default().to_vec()
        };
        let count = |count: Option<i64>| count.and_then(|n| usize::try_from(n).ok());
        StopRules {
            max_new_tokens: count(self.max_new_tokens).unwrap_or(room),
            min_new_tokens: count(self.min_new_tokens).unwrap_or(0),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            stop_token_ids: self.stop_ids().collect(),
            stop: texts(&self.stop),
            // those that are none have been refused
            stop_regex: texts(&self.stop_regex)
                .iter()
                .filter_map(|pattern| python_regex(pattern).ok())
                .collect(),
        }
    }

    /// What a grammar forces; an empty one is none.
    pub(crate) fn forced_text(&self) -> Result<Option<ForcedText>, Refused> {
        let set = |grammar: &Option<String>| grammar.clone().filter(|text| !text.is_empty());
        let (kind, compiled) = if let Some(schema) = set(&self.json_schema) {
            ("json", ForcedText::of_schema(&schema))
        } else if let Some(pattern) = set(&self.regex) {
            ("regex", ForcedText::of_regex(&pattern))
        } else if let Some(grammar) = set(&self.ebnf) {
            ("ebnf", ForcedText::of_ebnf(&grammar))
        } else {
            return Ok(None);
        };
        compiled
            .map(Some)
            .map_err(|error| Refused::Value(format!("Failed to compile {kind} grammar: {error}")))
    }
}

/// A number that may be absent.
pub(super) fn float(number: Option<&Number>, default: f64) -> f64 {
    number.and_then(Number::as_f64).unwrap_or(default)
}

#[cfg(test)]
pub(super) fn parsed(json: &str) -> SamplingParams {
    serde_json::from_str(json).expect("parameters")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn absent_and_null_token_counts_differ() {
        assert_eq!(parsed("{}").stop_rules(9).max_new_tokens, 128);
        let null = parsed(r#"{"max_new_tokens": null}"#);
        assert_eq!(null.stop_rules(9).max_new_tokens, 9);
    }

    #[test]
    fn a_tiny_temperature_is_greedy() {
        for greedy in [
            r#"{"temperature": 0}"#,
            r#"{"temperature": 1e-7}"#,
            r#"{"top_k": 1}"#,
        ] {
            assert_eq!(parsed(greedy).shaping(&[]).temperature, None, "{greedy}");
        }
        assert_eq!(parsed("{}").shaping(&[]).temperature, Some(1.0));
    }

    #[test]
    fn biases_are_of_ids() {
        let biases = parsed(r#"{"logit_bias": {" 7 ": 1, "1_0": -2.5}}"#).shaping(&[]);
        assert_eq!(biases.logit_bias, Arc::from([(7, 1.0), (10, -2.5)]));
    }
}
