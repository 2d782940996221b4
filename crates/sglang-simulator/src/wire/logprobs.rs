//! Log-probabilities: made up, deterministic, and a possible distribution.
//!
//! They are functions of the output's seed and the position, so that nothing is stored. SGLang computes float32 and prints it
//! widened to float64; so do we.

use rollout_tokenizer::Tokenizer;
use serde::Serialize;

use crate::numbers;
use crate::replies::Output;

/// `[log-probability, token id, text]`.
pub(crate) type Triple = (Option<f64>, u32, Option<String>);

/// What is wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogprobOptions {
    /// Anything at all.
    pub(crate) enabled: bool,
    /// First prompt token with a log-probability; none when absent.
    pub(crate) prompt_from: Option<usize>,
    /// Most likely tokens per position.
    pub(crate) top: usize,
    /// Tokens whose log-probability is wanted at every position.
    pub(crate) token_ids: Option<Vec<u32>>,
    /// Whether the text of tokens is wanted.
    pub(crate) text: bool,
}

impl LogprobOptions {
    /// Without `return_logprob` the other options mean nothing.
    pub(crate) fn only_if_enabled(self) -> Self {
        if self.enabled { self } else { Self::default() }
    }
}

/// The lists of `meta_info`, in their order.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Logprobs {
    pub(crate) input_token_logprobs: Vec<Triple>,
    pub(crate) output_token_logprobs: Vec<Triple>,
    pub(crate) output_token_logprobs_length: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_top_logprobs: Option<Vec<Option<Vec<Triple>>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_top_logprobs: Option<Vec<Option<Vec<Triple>>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_token_ids_logprobs: Option<Vec<Option<Vec<Triple>>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_token_ids_logprobs: Option<Vec<Option<Vec<Triple>>>>,
}

/// Computes the log-probabilities of one output.
pub(crate) struct Source<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) vocab_size: usize,
    pub(crate) options: &'a LogprobOptions,
}

/// Log-probability of the chosen token at a position: float32, widened.
pub(crate) fn chosen(seed: u64, position: u64) -> f64 {
    let draw = numbers::unit(numbers::mix(seed ^ 0x10, position));
    // an exponential with a mean of 0.7: most tokens are likely, some are not
    #[expect(
        clippy::cast_possible_truncation,
        reason = "float32 is what an engine computes"
    )]
    let value = (0.7 * (1.0 - draw).ln() - 1e-4) as f32;
    f64::from(value)
}

impl Source<'_> {
    /// Everything for a prompt and the first `generated` tokens of its output.
    pub(crate) fn all(&self, prompt: &[u32], output: &Output, generated: usize) -> Logprobs {
        let mut lists = Logprobs {
            output_token_logprobs_length: generated,
            ..Logprobs::default()
        };
        let outputs = 0..generated;
        let prompts = self
            .options
            .prompt_from
            .unwrap_or(prompt.len())
            .min(prompt.len())..prompt.len();
        lists.output_token_logprobs = outputs.clone().map(|i| self.output(output, i)).collect();
        let first = prompts.start;
        // the first one has nothing before it
        let value = |i: usize| (i > first).then(|| self.prompt_value(prompt, i));
        lists.input_token_logprobs = prompts
            .clone()
            .map(|i| self.triple(value(i), prompt[i]))
            .collect();
        if self.options.top > 0 {
            let top =
                |i: usize| value(i).map(|value| self.top(prompt[i], value, prompt_seed(prompt), i));
            lists.input_top_logprobs = Some(prompts.clone().map(top).collect());
            lists.output_top_logprobs = Some(
                outputs
                    .clone()
                    .map(|i| Some(self.output_top(output, i)))
                    .collect(),
            );
        }
        if let Some(ids) = &self.options.token_ids {
            let given = |i: usize| value(i).map(|_| self.given(ids, prompt_seed(prompt), i));
            lists.input_token_ids_logprobs = Some(prompts.map(given).collect());
            lists.output_token_ids_logprobs = Some(
                outputs
                    .map(|i| Some(self.given(ids, output.seed(), i)))
                    .collect(),
            );
        }
        lists
    }

    /// The chosen token at a position of the output.
    pub(crate) fn output(&self, output: &Output, position: usize) -> Triple {
        self.triple(Some(value_of(output, position)), output.token(position))
    }

    /// The most likely tokens at a position of the output.
    pub(crate) fn output_top(&self, output: &Output, position: usize) -> Vec<Triple> {
        self.top(
            output.token(position),
            value_of(output, position),
            output.seed(),
            position,
        )
    }

    fn prompt_value(&self, prompt: &[u32], position: usize) -> f64 {
        chosen(prompt_seed(prompt), position as u64)
    }

    fn triple(&self, value: Option<f64>, token: u32) -> Triple {
        let text = self
            .options
            .text
            .then(|| self.tokenizer.token_text(token).unwrap_or_default());
        (value, token, text)
    }

    /// The chosen token first, then less likely ones that share what probability is left.
    fn top(&self, token: u32, value: f64, seed: u64, position: usize) -> Vec<Triple> {
        let mut listed = vec![self.triple(Some(value), token)];
        let (mut last, mut left) = (value.exp(), 1.0 - value.exp());
        for rank in 1..self.options.top.min(self.vocab_size) {
            let draw = numbers::mix(numbers::mix(seed ^ 0x70, position as u64), rank as u64);
            last = (last * 0.9).min(left * 0.5).max(f64::MIN_POSITIVE);
            left -= last;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "float32 is what an engine computes"
            )]
            let value = f64::from(last.ln() as f32);
            listed.push(self.triple(Some(value), self.other(draw, &listed)));
        }
        listed
    }

    fn other(&self, draw: u64, listed: &[Triple]) -> u32 {
        let mut id = numbers::below(draw, self.vocab_size);
        while listed.iter().any(|(_, token, _)| *token as usize == id) {
            id = (id + 1) % self.vocab_size;
        }
        u32::try_from(id).unwrap_or(u32::MAX)
    }

    fn given(&self, ids: &[u32], seed: u64, position: usize) -> Vec<Triple> {
        ids.iter()
            .map(|id| {
                let value = chosen(numbers::mix(seed ^ 0x91, u64::from(*id)), position as u64);
                self.triple(Some(value - 3.0), *id)
            })
            .collect()
    }
}

fn value_of(output: &Output, position: usize) -> f64 {
    if output.is_forced() {
        0.0
    } else {
        chosen(output.seed(), position as u64)
    }
}

fn prompt_seed(prompt: &[u32]) -> u64 {
    numbers::of_tokens(&prompt[..prompt.len().min(64)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_negative_float32_values() {
        for position in 0..1000 {
            let value = chosen(3, position);
            assert!(value < 0.0 && value > -20.0, "{value}");
            #[expect(clippy::cast_possible_truncation, reason = "the point of the test")]
            let narrowed = value as f32;
            assert!((f64::from(narrowed) - value).abs() == 0.0);
        }
    }
}
