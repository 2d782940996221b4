//! Lists of log-probabilities. SGLang computes float32 and prints it widened to float64; so do we.

use rollout_tokenizer::Tokenizer;
use serde::Serialize;

use crate::replies::{Chances, Language, Output, Shaping, Spoken};

/// `[log-probability, token id, text]`.
pub(crate) type Triple = (Option<f64>, u32, Option<String>);

/// One entry per position; none where nothing comes before.
type Listed = Vec<Option<Vec<Triple>>>;

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
    /// What the parameters make of the output's probabilities.
    pub(crate) shaping: Shaping,
}

impl LogprobOptions {
    /// Without `return_logprob` the other options mean nothing.
    pub(crate) fn only_if_enabled(self) -> Self {
        if self.enabled { self } else { Self::default() }
    }
}

/// The lists of `meta_info`, in their order.
#[derive(Debug, Clone, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "names of the wire")]
pub(crate) struct Logprobs {
    pub(crate) input_token_logprobs: Vec<Triple>,
    pub(crate) output_token_logprobs: Vec<Triple>,
    pub(crate) output_token_logprobs_length: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_top_logprobs: Option<Listed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_top_logprobs: Option<Listed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_token_ids_logprobs: Option<Listed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_token_ids_logprobs: Option<Listed>,
}

/// Computes the log-probabilities of one output.
pub(crate) struct Source<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) language: &'a Language,
    pub(crate) options: &'a LogprobOptions,
}

/// Lists under construction.
struct Lists {
    tokens: Vec<Triple>,
    top: Option<Listed>,
    given: Option<Listed>,
}

impl Source<'_> {
    /// Everything for a prompt and the first `generated` tokens of its output.
    pub(crate) fn all(&self, prompt: &[u32], output: &Output, generated: usize) -> Logprobs {
        let first = self
            .options
            .prompt_from
            .unwrap_or(prompt.len())
            .min(prompt.len());
        let mut context = self.language.start().then_all(&prompt[..first]);
        let mut of_prompt = self.lists();
        let law = self.language.law(1.0);
        let plain = Shaping::default();
        for (position, token) in prompt.iter().enumerate().skip(first) {
            if position == first {
                // nothing is said of the first one
                of_prompt.skip(self.triple(None, *token));
            } else {
                let chances =
                    Chances::new(self.language, &law, context, &plain, &Spoken::default());
                let value = chances.log_probability(*token);
                let top = chances.top(self.options.top);
                self.add(&mut of_prompt, &chances, (value, *token), &top);
            }
            context = context.then(*token);
        }
        let mut of_output = self.lists();
        let shaping = &self.options.shaping;
        let law = shaping.law(self.language);
        let mut spoken = Spoken::default();
        for (position, token) in output.tokens(generated).iter().enumerate() {
            let chances = Chances::new(self.language, &law, context, shaping, &spoken);
            let (value, top) = if output.is_intended(position) {
                self.language
                    .intended(context, &law, *token, self.options.top)
            } else {
                (
                    chances.log_probability(*token),
                    chances.top(self.options.top),
                )
            };
            self.add(&mut of_output, &chances, (value, *token), &top);
            spoken.push(*token, shaping);
            context = context.then(*token);
        }
        Logprobs {
            input_token_logprobs: of_prompt.tokens,
            output_token_logprobs: of_output.tokens,
            output_token_logprobs_length: generated,
            input_top_logprobs: of_prompt.top,
            output_top_logprobs: of_output.top,
            input_token_ids_logprobs: of_prompt.given,
            output_token_ids_logprobs: of_output.given,
        }
    }

    fn lists(&self) -> Lists {
        Lists {
            tokens: Vec::new(),
            top: (self.options.top > 0).then(Vec::new),
            given: self.options.token_ids.as_ref().map(|_| Vec::new()),
        }
    }

    fn add(
        &self,
        lists: &mut Lists,
        chances: &Chances<'_>,
        (value, token): (f32, u32),
        top: &[(f32, u32)],
    ) {
        lists.tokens.push(self.triple(Some(value), token));
        if let Some(list) = &mut lists.top {
            list.push(Some(
                top.iter()
                    .map(|(value, token)| self.triple(Some(*value), *token))
                    .collect(),
            ));
        }
        if let (Some(list), Some(ids)) = (&mut lists.given, &self.options.token_ids) {
            let value = |id: &u32| Some(chances.log_probability(*id));
            list.push(Some(
                ids.iter().map(|id| self.triple(value(id), *id)).collect(),
            ));
        }
    }

    fn triple(&self, value: Option<f32>, token: u32) -> Triple {
        let text = self
            .options
            .text
            .then(|| self.tokenizer.token_text(token).unwrap_or_default());
        (value.map(f64::from), token, text)
    }
}

impl Lists {
    fn skip(&mut self, token: Triple) {
        self.tokens.push(token);
        if let Some(list) = &mut self.top {
            list.push(None);
        }
        if let Some(list) = &mut self.given {
            list.push(None);
        }
    }
}
