//! The answer of `/generate` for one output.

use serde::Serialize;

use crate::clock::seconds;
use crate::engine::Finished;
use crate::http::App;
use crate::scheduler::{Ending, Job, Nanos, Times};
use crate::wire::logprobs::{LogprobOptions, Logprobs, Source};
use crate::wire::meta_info::{self, CachedTokens, EndTimes, MetaInfo, ThinMetaInfo};
use crate::wire::text::{self, TextOptions};

/// Without a stream, SGLang's server learns of new tokens every so many.
const REPORTED_EVERY: usize = 50;

/// How one output is answered.
#[derive(Debug, Clone)]
pub(crate) struct AnswerOptions {
    pub(crate) rid: String,
    pub(crate) logprobs: LogprobOptions,
    pub(crate) text: TextOptions,
    pub(crate) return_prompt_token_ids: bool,
}

/// One answer, or one chunk of a stream.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) output_ids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
    pub(crate) meta_info: Meta,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<usize>,
    /// How it ended, when it did.
    #[serde(skip)]
    pub(crate) ending: Option<Ending>,
}

/// Full, or thin when the request never left the queue.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Meta {
    Full(Box<MetaInfo>),
    Thin(Box<ThinMetaInfo>),
}

/// The answer of a finished request; `first_sent` is when the first chunk of a stream went out before.
pub(crate) fn answer_of(
    app: &App,
    options: &AnswerOptions,
    finished: &Finished,
    first_sent: Option<Nanos>,
) -> Answer {
    let outcome = &finished.outcome;
    let generated = match outcome.ending {
        Ending::AbortedWaiting if !outcome.job.streaming => {
            outcome.generated - outcome.generated % REPORTED_EVERY
        }
        _ => outcome.generated,
    };
    let output = &outcome.job.output;
    Answer {
        text: text::of_output(
            &app.tokenizer,
            output,
            generated,
            outcome.ending,
            options.text,
        ),
        output_ids: output.tokens(generated).to_vec(),
        prompt_token_ids: options
            .return_prompt_token_ids
            .then(|| outcome.job.prompt.to_vec()),
        meta_info: end_meta(app, options, finished, generated, first_sent),
        index: None,
        ending: Some(outcome.ending),
    }
}

/// The `meta_info` of a finished request.
fn end_meta(
    app: &App,
    options: &AnswerOptions,
    finished: &Finished,
    generated: usize,
    first_sent: Option<Nanos>,
) -> Meta {
    let outcome = &finished.outcome;
    let clock = &app.engine.clock;
    let now = clock.now();
    let finish_reason = meta_info::finish_reason(&outcome.job.output, outcome.ending, generated);
    let spans = meta_info::spans(&outcome.versions, generated);
    if outcome.ending == Ending::AbortedWaiting {
        return Meta::Thin(Box::new(ThinMetaInfo {
            id: options.rid.clone(),
            finish_reason,
            weight_version: finished.version.to_string(),
            e2e_latency: seconds(outcome.finished - finished.received),
            weight_versions: spans,
            logprobs: logprobs(app, options, &outcome.job, generated),
            completion_tokens: generated,
            response_sent_to_client_ts: clock.unix(now),
        }));
    }
    let first_token = outcome.times.prefill_finished.unwrap_or(outcome.finished);
    let decoding = seconds(outcome.finished.saturating_sub(first_token));
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let throughput = (generated > 1 && decoding > 0.0).then(|| (generated - 1) as f64 / decoding);
    let mut meta = running_meta(app, options, &outcome.job, outcome.times, generated);
    meta.finish_reason = finish_reason;
    meta.weight_version = finished.version.to_string();
    meta.weight_versions = Some(spans);
    meta.end = Some(EndTimes {
        e2e_latency: seconds(outcome.finished - finished.received),
        request_received_ts: clock.unix(finished.received),
        first_token_latency: seconds(first_token.saturating_sub(finished.received)),
        api_server_dispatch_finish_ts: clock.unix(finished.dispatched),
        first_sent: first_sent.map(|at| clock.unix(at)),
        request_finished_ts: clock.unix(outcome.finished),
        decode_throughput: throughput,
        sent: first_sent.is_none().then(|| clock.unix(now)),
    });
    Meta::Full(Box::new(meta))
}

/// The `meta_info` of a request that goes on.
pub(crate) fn running_meta(
    app: &App,
    options: &AnswerOptions,
    job: &Job,
    times: Times,
    generated: usize,
) -> MetaInfo {
    let clock = &app.engine.clock;
    let at = |time: Option<Nanos>| time.map_or(0.0, |time| clock.unix(time));
    let details = CachedTokens {
        device: times.cached,
        host: 0,
    };
    MetaInfo {
        id: options.rid.clone(),
        finish_reason: serde_json::Value::Null,
        prompt_tokens: job.prompt.len(),
        weight_version: app.engine.identity().version,
        num_retractions: times.retractions,
        storage_prefetch_wait: 0.0,
        storage_staging_wait: 0.0,
        forward_entry_time: at(times.forward_entry),
        prefill_finished_time: at(times.prefill_finished),
        queue_time: seconds(times.queued),
        logprobs: logprobs(app, options, job, generated),
        reasoning_tokens: app.reasoning_tokens(&job.output, generated),
        completion_tokens: generated,
        cached_tokens: times.cached,
        weight_versions: None,
        cached_tokens_details: (times.cached > 0).then_some(details),
        dp_rank: None,
        end: None,
        first_sent: None,
    }
}

fn logprobs(app: &App, options: &AnswerOptions, job: &Job, generated: usize) -> Option<Logprobs> {
    options.logprobs.enabled.then(|| {
        let source = Source {
            tokenizer: &app.tokenizer,
            language: app.model.language(),
            options: &options.logprobs,
        };
        source.all(&job.prompt, &job.output, generated)
    })
}
