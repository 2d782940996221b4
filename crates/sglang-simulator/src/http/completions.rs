//! `/v1/completions`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::App;
use super::body::{self, Place};
use super::chat::{self, as_openai};
use super::generate::{self, Answer, AnswerOptions, Chunks, Prepared, new_rid, outputs_of};
use super::reply::{self, ApiError};
use crate::engine::Ticket;
use crate::wire::logprobs::{LogprobOptions, Logprobs};
use crate::wire::sampling::{OneOrMany, SamplingParams};
use crate::wire::text::TextOptions;

const PLACE: Place = Place {
    path: "/v1/completions",
    function: "openai_v1_completions",
    line: 0,
};

/// Tokens of a completion that names no limit.
const DEFAULT_MAX_TOKENS: i64 = 16;

#[derive(Debug, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the wire")]
struct CompletionRequest {
    model: Option<String>,
    prompt: Prompt,
    max_tokens: Option<i64>,
    temperature: Option<serde_json::Number>,
    top_p: Option<serde_json::Number>,
    top_k: Option<i64>,
    min_p: Option<serde_json::Number>,
    stop: Option<OneOrMany>,
    stop_token_ids: Option<Vec<Option<i64>>>,
    logprobs: Option<i64>,
    n: Option<i64>,
    seed: Option<i64>,
    rid: Option<String>,
    #[serde(default)]
    ignore_eos: bool,
    #[serde(default)]
    no_stop_trim: bool,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    stream_options: Option<Value>,
    #[serde(default)]
    return_token_ids: bool,
    skip_special_tokens: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
    Texts(Vec<String>),
    Lists(Vec<Vec<u32>>),
}

/// Answers `/v1/completions`.
pub(super) async fn handle(app: Arc<App>, request: Request) -> Response {
    match answer(app, request).await {
        Ok(response) => response,
        Err(error) => as_openai(error).into_response(),
    }
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    body::require_json(&request)?;
    let bytes = body::read(request).await?;
    let fields = PLACE.object(&bytes)?;
    if !fields.contains_key("prompt") {
        let input = crate::wire::python::repr(&Value::Object(fields));
        let problem = body::Problem::new("missing", "('body', 'prompt')", "Field required", &input);
        return Err(PLACE.invalid(&[problem]));
    }
    let wanted: CompletionRequest = serde_json::from_value(Value::Object(fields))
        .map_err(|error| ApiError::Native(error.to_string()))?;
    let prepared = wanted.prepare(&app)?;
    generate::warm_up(&app, &prepared).await?;
    let (tickets, options) = generate::submit(&app, prepared, wanted.stream)?;
    if wanted.stream {
        return Ok(stream(&app, &wanted, tickets, options));
    }
    let prompts: Vec<_> = tickets
        .iter()
        .map(|ticket| ticket.job().prompt.clone())
        .collect();
    let answers = generate::collect(&app, tickets, &options).await?;
    Ok(reply::ok(&wanted.completion(&app, &prompts, &answers)))
}

impl CompletionRequest {
    fn params(&self) -> SamplingParams {
        SamplingParams {
            max_new_tokens: Some(self.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS)),
            temperature: self.temperature.clone(),
            top_p: self.top_p.clone(),
            top_k: self.top_k,
            min_p: self.min_p.clone(),
            stop: self.stop.clone(),
            stop_token_ids: self.stop_token_ids.clone(),
            n: self.n,
            sampling_seed: self.seed,
            ignore_eos: Some(self.ignore_eos),
            no_stop_trim: Some(self.no_stop_trim),
            skip_special_tokens: self.skip_special_tokens,
            ..SamplingParams::default()
        }
    }

    fn prompts(&self, app: &App) -> Result<Vec<Arc<[u32]>>, ApiError> {
        let encode = |text: &String| {
            let ids = app.tokenizer.encode(text);
            ids.map(Arc::from)
                .map_err(|error| ApiError::Native(error.to_string()))
        };
        match &self.prompt {
            Prompt::Text(text) => Ok(vec![encode(text)?]),
            Prompt::Texts(texts) => texts.iter().map(encode).collect(),
            Prompt::Ids(ids) => Ok(vec![ids.as_slice().into()]),
            Prompt::Lists(lists) => Ok(lists.iter().map(|ids| ids.as_slice().into()).collect()),
        }
    }

    fn prepare(&self, app: &App) -> Result<Vec<Prepared>, ApiError> {
        let params = self.params();
        params.verify(app.vocab_size).map_err(ApiError::Native)?;
        let prompts = self.prompts(app)?;
        let samples = params.samples();
        let alone = prompts.len() * samples == 1;
        let mut prepared = Vec::new();
        for prompt in prompts {
            for (sample, output) in outputs_of(app, &prompt, &params, samples)?
                .into_iter()
                .enumerate()
            {
                let rid = self.rid.as_deref().filter(|_| alone);
                prepared.push(Prepared {
                    rid: rid.map_or_else(new_rid, Into::into),
                    prompt: prompt.clone(),
                    output,
                    logprobs: self.logprob_options(),
                    text: TextOptions {
                        skip_special_tokens: params.skip_special_tokens.unwrap_or(true),
                        no_stop_trim: self.no_stop_trim,
                    },
                    return_prompt_token_ids: false,
                    leads_samples: samples > 1 && sample == 0,
                });
            }
        }
        Ok(prepared)
    }

    fn logprob_options(&self) -> LogprobOptions {
        let top = self.logprobs.and_then(|top| usize::try_from(top).ok());
        let options = LogprobOptions {
            enabled: top.is_some(),
            prompt_from: None,
            top: top.unwrap_or(0),
            token_ids: None,
            text: true,
            temperature: self.params().temperature().unwrap_or(1.0),
        };
        options.only_if_enabled()
    }

    fn completion(&self, app: &App, prompts: &[Arc<[u32]>], answers: &[Answer]) -> Value {
        let facts: Vec<_> = answers
            .iter()
            .map(|answer| chat::Facts::of(&answer.meta_info))
            .collect();
        let choices: Vec<_> = answers
            .iter()
            .zip(prompts)
            .enumerate()
            .map(|(index, (answer, prompt))| self.choice(index, prompt, answer))
            .collect();
        json!({
            "id": facts.first().map(|facts| facts.id),
            "object": "text_completion",
            "created": app.created(),
            "model": self.model(),
            "choices": choices,
            "usage": chat::usage(facts.iter().copied()),
            "metadata": facts.first().map(chat::metadata),
        })
    }

    fn choice(&self, index: usize, prompt: &[u32], answer: &Answer) -> Value {
        let facts = chat::Facts::of(&answer.meta_info);
        let (finish_reason, matched) = chat::finish(facts.finish_reason, answer.ending, false);
        let mut choice = json!({
            "index": index,
            "text": answer.text,
            "logprobs": facts.logprobs.map(|lists| legacy_logprobs(lists, 0)),
            "finish_reason": finish_reason,
            "matched_stop": matched,
        });
        if self.return_token_ids {
            choice["token_ids"] = answer.output_ids.clone().into();
            choice["prompt_token_ids"] = prompt.into();
        }
        choice
    }

    fn model(&self) -> &str {
        self.model.as_deref().unwrap_or(chat::DEFAULT_MODEL)
    }

    fn include_usage(&self) -> bool {
        let options = self.stream_options.as_ref();
        options.is_some_and(|options| options["include_usage"] == true)
    }
}

/// Log-probabilities in the old form of completions.
fn legacy_logprobs(lists: &Logprobs, from: usize) -> Value {
    let tokens = lists.output_token_logprobs.get(from..).unwrap_or_default();
    let tops = lists
        .output_top_logprobs
        .iter()
        .flatten()
        .skip(from)
        .flatten();
    let tops: Vec<Value> = tops
        .map(|listed| {
            let named = listed
                .iter()
                .map(|(value, _, text)| (text.clone().unwrap_or_default(), json!(value)));
            Value::Object(named.collect::<Map<_, _>>())
        })
        .collect();
    json!({
        "text_offset": vec![-1; tokens.len()],
        "token_logprobs": tokens.iter().map(|(value, _, _)| value).collect::<Vec<_>>(),
        "tokens": tokens.iter().map(|(_, _, text)| text).collect::<Vec<_>>(),
        "top_logprobs": tops,
    })
}

fn stream(
    app: &Arc<App>,
    wanted: &CompletionRequest,
    tickets: Vec<Ticket>,
    options: Vec<AnswerOptions>,
) -> Response {
    let head = json!({
        "id": options.first().map(|options| options.rid.clone()),
        "object": "text_completion",
        "created": app.created(),
        "model": wanted.model(),
    });
    let include_usage = wanted.include_usage();
    let usage = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let streams: Vec<_> = tickets
        .into_iter()
        .zip(options)
        .enumerate()
        .map(|(index, (ticket, options))| {
            let state = (Chunks::new(app.clone(), ticket, options), 0, 0);
            let (head, usage) = (head.clone(), usage.clone());
            futures_util::stream::unfold(state, move |(mut chunks, mut sent, mut tokens)| {
                let (head, usage) = (head.clone(), usage.clone());
                async move {
                    let event = match chunks.next().await? {
                        Ok(answer) => {
                            if answer.ending.is_some() {
                                usage.lock().push(answer.meta_info.clone());
                            }
                            let event = chunk(&head, index, &answer, sent, tokens);
                            sent = sent.max(answer.text.len());
                            tokens = answer.output_ids.len();
                            Ok(event)
                        }
                        Err(ApiError::Dead) => {
                            Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
                        }
                        Err(error) => Ok(reply::event(&as_openai(error).into_event())),
                    };
                    Some((event, (chunks, sent, tokens)))
                }
            })
            .boxed()
        })
        .collect();
    let end_head = head;
    let end = futures_util::stream::once(async move {
        let mut last = Vec::new();
        if include_usage {
            let mut event = end_head;
            event["choices"] = json!([]);
            event["usage"] = chat::usage(usage.lock().iter().map(chat::Facts::of));
            last.extend_from_slice(&reply::event(&event));
        }
        last.extend_from_slice(&reply::done_event());
        Ok(Bytes::from(last))
    });
    reply::event_stream(Body::from_stream(
        futures_util::stream::select_all(streams).chain(end),
    ))
}

fn chunk(head: &Value, index: usize, answer: &Answer, sent: usize, tokens: usize) -> Bytes {
    let facts = chat::Facts::of(&answer.meta_info);
    let (finish_reason, matched) = match answer.ending {
        Some(_) => chat::finish(facts.finish_reason, answer.ending, false),
        None => (Value::Null, Value::Null),
    };
    let mut event = head.clone();
    event["choices"] = json!([{
        "index": index,
        "text": answer.text.get(sent..).unwrap_or_default(),
        "logprobs": facts.logprobs.map(|lists| legacy_logprobs(lists, tokens)),
        "finish_reason": finish_reason,
        "matched_stop": matched,
    }]);
    reply::event(&event)
}
