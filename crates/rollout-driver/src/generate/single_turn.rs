//! `singleTurn`: one `/generate` request, or the rest of one that was cut off.

use std::sync::Arc;
use std::time::Duration;

use rollout_engine::{Reach, SampleEnd};
use rollout_session::{Sample, SampleStatus};
use serde_json::{Map, Value, json};
use sglang_client::{
    ClientError, Fault, FinishReason, GenerateReply, GenerateRequest, OutputTokens, Prompt,
};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::unserved::{is_pushback, is_unserved, pushback_pause};
use super::{
    ABORT_PATIENCE, Budget, GenerateInput, Generated, PromptError, checked, reaches, remaining,
    sampling_params,
};
use crate::config::Sampling;
use crate::router::RouterClient;

/// The generate function.
#[derive(Debug)]
pub struct SingleTurnFn {
    /// The router.
    pub router: RouterClient,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Longest prompt plus output.
    pub max_context: Option<i64>,
    /// One permit per request at the engines.
    pub permits: Arc<Semaphore>,
    /// Deadline of a request, the waits for room at an engine included.
    pub within: Duration,
    /// The pause before a full queue is asked again for the first time.
    pub pushback: Duration,
}

impl SingleTurnFn {
    /// Runs it.
    pub async fn run(&self, input: GenerateInput) -> Generated {
        let GenerateInput {
            mut sample,
            prompt,
            slot,
            step,
            cancel,
            reach,
            // A request shares no process, and has none of its own.
            company: _,
            out_of_memory: _,
        } = input;
        let Some(prompt) = prompt else {
            return Generated::rejected("no_prompt", &PromptError::NoTokenizer);
        };
        let mut params = sampling_params(&self.sampling, slot);
        match self.budget(&sample, &prompt) {
            Budget::Unlimited => {}
            Budget::Tokens(left) => {
                params.insert("max_new_tokens".into(), json!(left));
            }
            Budget::Spent => {
                sample.status = SampleStatus::Truncated;
                return finished(sample, 0);
            }
        }
        let request = request(&sample, &prompt, params);
        let reply = match self.send(step, &request, &cancel, reach).await {
            Sent::Reply(reply) => reply,
            Sent::Failed(error) => return failed(&error),
            Sent::Cancelled => return Generated::aborted(vec![sample], 0),
        };
        let output = match reply.output() {
            Ok(output) => output,
            Err(problem) => {
                return failed(&ClientError::bad_reply(self.router.url(), &problem));
            }
        };
        let tokens = output.ids.len() as u64;
        if let Err(problem) = apply(&mut sample, &prompt, &reply, &output) {
            return Generated::infra("bad_reply", &problem);
        }
        finished(sample, tokens)
    }

    fn budget(&self, sample: &Sample, prompt: &Prompt) -> Budget {
        let generated = length(sample.response_length);
        let input = if sample.tokens.is_empty() {
            match prompt {
                Prompt::Ids(ids) => Some(length(ids.len())),
                Prompt::Text(_) => None,
            }
        } else {
            Some(length(sample.tokens.len()))
        };
        remaining(
            self.sampling.max_new_tokens,
            self.max_context,
            input,
            generated,
        )
    }

    /// Sends it, and again while an engine that works has no room: nothing of it has been begun.
    async fn send(
        &self,
        step: u32,
        request: &GenerateRequest,
        cancel: &CancellationToken,
        reach: watch::Receiver<Reach>,
    ) -> Sent {
        let _permit = tokio::select! {
            permit = self.permits.acquire() => permit,
            () = cancel.cancelled() => return Sent::Cancelled,
        };
        let until = Instant::now() + self.within;
        let mut tries = 0;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let error = match self
                .send_once(step, request, left, cancel, reach.clone())
                .await
            {
                Sent::Failed(error) if is_pushback(&error) => error,
                sent => return sent,
            };
            let again = Instant::now() + pushback_pause(self.pushback, tries, rand::random());
            if again >= until {
                return Sent::Failed(error);
            }
            tokio::select! {
                () = tokio::time::sleep_until(again) => tries += 1,
                () = cancel.cancelled() => return Sent::Cancelled,
            }
        }
    }

    async fn send_once(
        &self,
        step: u32,
        request: &GenerateRequest,
        within: Duration,
        cancel: &CancellationToken,
        reach: watch::Receiver<Reach>,
    ) -> Sent {
        let call = self.router.generate(step, request, within);
        tokio::pin!(call);
        let result = tokio::select! {
            biased;
            result = &mut call => result,
            () = cancel.cancelled() => {
                let told = async {
                    self.abort(&request.rid).await;
                    tokio::time::timeout(ABORT_PATIENCE, &mut call).await
                };
                let ended = tokio::select! {
                    biased;
                    // The fence has told the engine already, in vain: closing the connection is all that is left.
                    () = reaches(reach, Reach::EnginesSilent) => return Sent::Cancelled,
                    ended = told => ended,
                };
                match ended {
                    Ok(result) => result,
                    Err(_) => return Sent::Cancelled,
                }
            }
        };
        match result {
            Ok(reply) => Sent::Reply(Box::new(reply)),
            Err(error) => {
                if matches!(error, ClientError::TimedOut { .. }) {
                    tokio::select! {
                        () = self.abort(&request.rid) => {}
                        () = cancel.cancelled() => {}
                    }
                }
                Sent::Failed(error)
            }
        }
    }

    async fn abort(&self, rid: &str) {
        if let Err(error) = self.router.abort(rid).await {
            tracing::warn!(%error, rid, "the abort of a request failed");
        }
    }
}

enum Sent {
    Reply(Box<GenerateReply>),
    Failed(ClientError),
    Cancelled,
}

fn request(sample: &Sample, prompt: &Prompt, params: Map<String, Value>) -> GenerateRequest {
    let prompt = if sample.tokens.is_empty() {
        prompt.clone()
    } else {
        Prompt::Ids(sample.tokens.clone())
    };
    GenerateRequest {
        return_prompt_token_ids: matches!(prompt, Prompt::Text(_)),
        prompt,
        rid: format!("{:032x}", rand::random::<u128>()),
        sampling_params: params,
        return_logprob: true,
        return_routed_experts: false,
        return_indexer_topk: false,
    }
}

fn failed(error: &ClientError) -> Generated {
    match error.fault() {
        Fault::Request => Generated::rejected("engine_refused", error),
        Fault::Closed => Generated::aborted(Vec::new(), 0),
        Fault::Server if is_unserved(error) => Generated::unserved(error.label(), error),
        Fault::Server => Generated::infra(error.label(), error),
    }
}

fn finished(sample: Sample, tokens: u64) -> Generated {
    let end = if sample.status == SampleStatus::Aborted {
        SampleEnd::Aborted { tokens }
    } else {
        SampleEnd::Finished {
            scorable: true,
            tokens,
        }
    };
    checked(Generated {
        samples: vec![sample],
        end,
        problem: None,
        session: None,
    })
}

/// Adds a reply to a sample: ids, log-probs and text are appended, never encoded again.
fn apply(
    sample: &mut Sample,
    prompt: &Prompt,
    reply: &GenerateReply,
    output: &OutputTokens,
) -> Result<(), String> {
    if sample.tokens.is_empty() {
        sample.tokens = match (prompt, &reply.prompt_token_ids) {
            (Prompt::Ids(ids), _) | (Prompt::Text(_), Some(ids)) => ids.clone(),
            (Prompt::Text(_), None) if output.ids.is_empty() => Vec::new(),
            (Prompt::Text(_), None) => {
                return Err("the reply has no prompt_token_ids, though they were asked for".into());
            }
        };
    }
    let new = output.ids.len();
    sample.tokens.extend_from_slice(&output.ids);
    sample.response.push_str(&reply.text);
    sample.response_length += new;
    sample
        .rollout_log_probs
        .get_or_insert_default()
        .extend_from_slice(&output.log_probs);
    if let Some(mask) = &mut sample.loss_mask {
        mask.resize(mask.len() + new, 1);
    }
    let meta = &reply.meta_info;
    sample.weight_versions.extend(meta.weight_version_text());
    let cache = &mut sample.prefix_cache_info;
    cache.cached_tokens += meta.cached_tokens.unwrap_or(0);
    cache.total_prompt_tokens += meta.prompt_tokens.unwrap_or(0);
    if meta.spec_verify_ct.is_some() {
        let spec = &mut sample.spec_info;
        spec.spec_accept_token_num += meta.spec_accept_token_num.unwrap_or(0);
        spec.spec_draft_token_num += meta.spec_draft_token_num.unwrap_or(0);
        spec.spec_verify_ct += meta.spec_verify_ct.unwrap_or(0);
        spec.completion_token_num += meta.completion_tokens.unwrap_or(0);
    }
    sample.status = match &meta.finish_reason {
        Some(FinishReason::Length) => SampleStatus::Truncated,
        Some(FinishReason::Abort { .. }) => SampleStatus::Aborted,
        Some(FinishReason::Stop | FinishReason::Other) | None => SampleStatus::Completed,
    };
    Ok(())
}

fn length(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}
