//! One output that is to be generated: what the engine needs, and what the answer needs.

use std::sync::Arc;

use serde_json::Value;

use super::AnswerOptions;
use crate::engine::Submission;
use crate::http::App;
use crate::http::reply::ApiError;
use crate::replies::{Demands, ForcedText, Output};
use crate::wire::logprobs::LogprobOptions;
use crate::wire::sampling::SamplingParams;
use crate::wire::text::TextOptions;

/// One output to generate, checked.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) rid: Arc<str>,
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) output: Output,
    pub(crate) logprobs: LogprobOptions,
    pub(crate) text: TextOptions,
    pub(crate) return_prompt_token_ids: bool,
    /// It is the first of several samples of its prompt.
    pub(crate) leads_samples: bool,
}

impl Prepared {
    /// The request that only computes the prompt, in front of several samples.
    pub(super) fn prefix_only(&self) -> Option<Submission> {
        self.leads_samples.then(|| Submission {
            rid: new_rid(),
            prompt: self.prompt.clone(),
            output: self.output.truncated(),
            streaming: false,
            cacheable: usize::MAX,
        })
    }

    /// The engine's part and the answer's part.
    pub(super) fn split(self, streaming: bool) -> (Submission, AnswerOptions) {
        let cacheable = self.logprobs.prompt_from.unwrap_or(usize::MAX);
        let options = AnswerOptions {
            rid: self.rid.to_string(),
            logprobs: self.logprobs,
            text: self.text,
            return_prompt_token_ids: self.return_prompt_token_ids,
        };
        let submission = Submission {
            rid: self.rid,
            prompt: self.prompt,
            output: self.output,
            streaming,
            cacheable,
        };
        (submission, options)
    }
}

/// A request id as SGLang makes them.
pub(crate) fn new_rid() -> Arc<str> {
    format!("{:032x}", rand::random::<u128>()).into()
}

/// A prompt, and what is known of it beside its ids.
pub(crate) struct Question<'a> {
    pub(crate) prompt: Arc<[u32]>,
    /// The chat that it was rendered from.
    pub(crate) messages: Option<&'a [Value]>,
    /// What has to be said, whatever the parameters say.
    pub(crate) forced: Option<ForcedText>,
}

impl Question<'_> {
    /// A prompt that is no chat.
    pub(crate) fn plain(prompt: Arc<[u32]>) -> Self {
        Self {
            prompt,
            messages: None,
            forced: None,
        }
    }
}

/// What is generated for a prompt, `rids.len()` times, once everything is checked.
pub(crate) fn outputs_of(
    app: &App,
    question: Question<'_>,
    params: &SamplingParams,
    logprobs: &LogprobOptions,
    rids: impl ExactSizeIterator<Item = Arc<str>>,
) -> Result<Vec<Prepared>, ApiError> {
    let Question {
        prompt,
        messages,
        forced,
    } = question;
    let stops = app
        .check_lengths(&prompt, params)
        .map_err(ApiError::Native)?;
    let by_params = params.forced_text()?;
    app.check_vocabulary(&prompt)?;
    let shaping = params.shaping(app.tokenizer.eos_ids());
    let mut demands = Demands {
        sampling_seed: params.seed(),
        shaping,
        sample: 0,
        forced_text: forced.or(by_params),
        stops,
    };
    let samples = rids.len();
    let mut prepared = Vec::with_capacity(samples);
    for (sample, rid) in rids.enumerate() {
        demands.sample = sample;
        let output = app
            .model
            .reply(&prompt, messages, &demands)
            .map_err(|error| ApiError::Native(error.to_string()))?;
        prepared.push(Prepared {
            rid,
            prompt: prompt.clone(),
            output,
            logprobs: logprobs.clone(),
            text: params.text_options(),
            return_prompt_token_ids: false,
            leads_samples: samples > 1 && sample == 0,
        });
    }
    Ok(prepared)
}
