//! One output that is to be generated: what the engine needs, and what the answer needs.

use std::sync::Arc;

use super::AnswerOptions;
use crate::engine::Submission;
use crate::http::App;
use crate::http::reply::ApiError;
use crate::replies::{Demands, Output, StopRules};
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

/// What the model says to a prompt that is no chat, `samples` times, once everything is checked.
pub(crate) fn outputs_of(
    app: &App,
    prompt: &[u32],
    params: &SamplingParams,
    samples: usize,
) -> Result<Vec<Output>, ApiError> {
    let rules = app
        .check_lengths(prompt, params)
        .map_err(ApiError::Native)?;
    let demands = demands_of(app, params, rules)?;
    app.check_vocabulary(prompt)?;
    (0..samples)
        .map(|sample| {
            let demands = Demands {
                sample,
                ..demands.clone()
            };
            app.model
                .reply(prompt, None, &demands)
                .map_err(|error| ApiError::Native(error.to_string()))
        })
        .collect()
}

/// What the parameters demand of the model.
pub(crate) fn demands_of(
    app: &App,
    params: &SamplingParams,
    stops: StopRules,
) -> Result<Demands, ApiError> {
    Ok(Demands {
        sampling_seed: params.seed(),
        shaping: params.shaping(app.tokenizer.eos_ids()),
        sample: 0,
        forced_text: params.forced_text()?,
        stops,
    })
}
