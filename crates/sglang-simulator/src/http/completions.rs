//! `/v1/completions`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Map, Value, json};

use super::App;
use super::body::{self, Place, Problem};
use super::chat::{self, as_openai};
use super::fields::Fields;
use super::generate::{self, Answer, AnswerOptions, Chunks, Prepared, new_rid, outputs_of};
use super::pydantic::{self, Field, Kind, Location, filled, optional};
use super::reply::{self, ApiError};
use crate::engine::Ticket;
use crate::wire::logprobs::{LogprobOptions, Logprobs};
use crate::wire::sampling::SamplingParams;
use crate::wire::text::TextOptions;

const PLACE: Place = Place {
    path: "/v1/completions",
    function: "openai_v1_completions",
    line: 1860,
};

/// Tokens of a completion that names no limit.
const DEFAULT_MAX_TOKENS: i64 = 16;

const TEXTS: Kind = Kind::Union(&[Kind::List(&Kind::Str), Kind::Str]);
const PROMPT: Kind = Kind::Union(&[
    Kind::List(&Kind::Int),
    Kind::List(&Kind::List(&Kind::Int)),
    Kind::Str,
    Kind::List(&Kind::Str),
]);

/// Fields before `stream_options`, in the order of `CompletionRequest`.
const FIRST: [Field; 13] = [
    filled("model", Kind::Str),
    filled("prompt", PROMPT),
    optional("best_of", Kind::Int),
    filled("echo", Kind::Bool),
    filled("frequency_penalty", Kind::Float),
    optional("logit_bias", Kind::DictOf("str,float", &Kind::Float)),
    optional("logprobs", Kind::Int),
    filled("max_tokens", Kind::Int),
    filled("n", Kind::Int),
    filled("presence_penalty", Kind::Float),
    optional("seed", Kind::Int),
    optional("stop", TEXTS),
    filled("stream", Kind::Bool),
];

/// Fields after it.
const LAST: [Field; 25] = [
    optional("suffix", Kind::Str),
    filled("temperature", Kind::Float),
    filled("top_p", Kind::Float),
    optional("user", Kind::Str),
    filled("return_token_ids", Kind::Bool),
    filled("top_k", Kind::Int),
    filled("min_p", Kind::Float),
    filled("min_tokens", Kind::Int),
    optional("json_schema", Kind::Str),
    optional("regex", Kind::Str),
    optional("ebnf", Kind::Str),
    filled("repetition_penalty", Kind::Float),
    optional("stop_token_ids", Kind::List(&Kind::Int)),
    optional("stop_regex", TEXTS),
    filled("no_stop_trim", Kind::Bool),
    filled("ignore_eos", Kind::Bool),
    filled("skip_special_tokens", Kind::Bool),
    optional("session_id", Kind::Str),
    optional("session_params", Kind::Dict("any,any")),
    optional("custom_params", Kind::Dict("any,any")),
    optional("custom_logit_processor", Kind::Str),
    optional("watermark", Kind::Dict("str,any")),
    optional("rid", TEXTS),
    optional("extra_key", TEXTS),
    optional("priority", Kind::Int),
];

#[derive(Debug)]
struct CompletionRequest {
    fields: Fields,
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
    drop(bytes);
    check(&fields)?;
    let wanted = CompletionRequest {
        fields: Fields(fields),
    };
    let prepared = wanted.prepare(&app)?;
    generate::warm_up(&app, &prepared).await?;
    let stream_wanted = wanted.fields.flag("stream");
    let (tickets, options) = generate::submit(&app, prepared, stream_wanted)?;
    if stream_wanted {
        return Ok(stream(&app, &wanted, tickets, options));
    }
    let prompts: Vec<_> = tickets
        .iter()
        .map(|ticket| ticket.job().prompt.clone())
        .collect();
    let answers = generate::collect(&app, tickets, &options).await?;
    Ok(reply::ok(&wanted.completion(&app, &prompts, &answers)))
}

/// Checks types.
fn check(fields: &Map<String, Value>) -> Result<(), ApiError> {
    let mut problems = Vec::new();
    if !fields.contains_key("prompt") {
        let input = crate::wire::python::repr(&Value::Object(fields.clone()));
        let place = "('body', 'prompt')";
        problems.push(Problem::new("missing", place, "Field required", &input));
    }
    pydantic::check(&FIRST, fields, &mut problems);
    let limit = fields.get("max_tokens");
    let is_positive = limit
        .and_then(pydantic::integer)
        .is_none_or(|limit| limit.as_i64().is_none_or(|limit| limit > 0));
    if let Some(limit) = limit.filter(|_| !is_positive) {
        let message = "max_tokens must be positive";
        let at = Location::field("max_tokens");
        let problem = at.problem("value_error", &format!("Value error, {message}"), limit);
        problems.push(problem.with_context(&format!("'error': ValueError('{message}')")));
    }
    chat::check_stream_options(fields.get("stream_options"), &mut problems);
    pydantic::check(&LAST, fields, &mut problems);
    chat::check_format(fields.get("response_format"), &mut problems);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(PLACE.invalid(&problems))
    }
}

impl CompletionRequest {
    fn params(&self) -> Result<SamplingParams, ApiError> {
        let limit = self.fields.integer("max_tokens");
        let text = |name: &str| self.fields.text(name).map(str::to_owned);
        let mut params = self
            .fields
            .sampling(Some(limit.unwrap_or(DEFAULT_MAX_TOKENS)))?;
        params.json_schema = text("json_schema");
        let Some(format) = self.fields.get("response_format") else {
            return Ok(params);
        };
        match format["type"].as_str() {
            Some("json_object") => params.json_schema = Some("{\"type\": \"object\"}".into()),
            Some("structural_tag") => params.structural_tag = Some(format.to_string()),
            Some("json_schema") => match &format["json_schema"]["schema"] {
                Value::Null => {
                    let message = "schema_ is required for json_schema response format request.";
                    return Err(ApiError::Native(message.into()));
                }
                schema => params.json_schema = Some(schema.to_string()),
            },
            _ => {}
        }
        Ok(params)
    }

    fn prompts(&self, app: &App) -> Result<Vec<Arc<[u32]>>, ApiError> {
        let encode = |text: &str| {
            let ids = app.tokenizer.encode(text);
            ids.map(Arc::from)
                .map_err(|error| ApiError::Native(error.to_string()))
        };
        // what no vocabulary can have becomes what none has
        let id = |id: &Value| {
            let id = pydantic::integer(id).and_then(|id| id.as_u64());
            id.and_then(|id| u32::try_from(id).ok()).unwrap_or(u32::MAX)
        };
        let ids = |ids: &[Value]| ids.iter().map(id).collect::<Arc<[u32]>>();
        let is_empty = |part: &Value| match part {
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            // the id 0 is no part of a prompt to Python
            other => pydantic::integer(other).is_some_and(|id| id.as_i64() == Some(0)),
        };
        let prompt = self.fields.get("prompt").unwrap_or(&Value::Null);
        match prompt {
            Value::String(text) if !text.is_empty() => Ok(vec![encode(text)?]),
            Value::Array(parts) if !parts.iter().all(is_empty) => match &parts[0] {
                Value::Array(_) => {
                    let lists = parts.iter().filter_map(Value::as_array);
                    Ok(lists.map(|list| ids(list)).collect())
                }
                _ if parts.iter().all(|part| pydantic::integer(part).is_some()) => {
                    Ok(vec![ids(parts)])
                }
                _ => parts.iter().filter_map(Value::as_str).map(encode).collect(),
            },
            _ => Err(ApiError::Native("Prompt cannot be empty".into())),
        }
    }

    fn prepare(&self, app: &App) -> Result<Vec<Prepared>, ApiError> {
        let prompts = self.prompts(app)?;
        let params = self.params()?;
        self.fields.check_features()?;
        params.verify(app.vocab_size)?;
        let samples = params.samples();
        let alone = prompts.len() * samples == 1;
        let rid = generate::first_text(self.fields.get("rid")).filter(|_| alone);
        let logprobs = self.logprob_options(app, &params);
        let mut prepared = Vec::new();
        for prompt in prompts {
            for (sample, output) in outputs_of(app, &prompt, &params, samples)?
                .into_iter()
                .enumerate()
            {
                prepared.push(Prepared {
                    rid: rid.map_or_else(new_rid, Into::into),
                    prompt: prompt.clone(),
                    output,
                    logprobs: logprobs.clone(),
                    text: TextOptions {
                        skip_special_tokens: params.skip_special_tokens.unwrap_or(true),
                        no_stop_trim: params.no_stop_trim.unwrap_or(false),
                    },
                    return_prompt_token_ids: false,
                    leads_samples: samples > 1 && sample == 0,
                });
            }
        }
        Ok(prepared)
    }

    fn logprob_options(&self, app: &App, params: &SamplingParams) -> LogprobOptions {
        let top = self.fields.integer("logprobs");
        let options = LogprobOptions {
            enabled: top.is_some(),
            prompt_from: None,
            top: top.and_then(|top| usize::try_from(top).ok()).unwrap_or(0),
            token_ids: None,
            text: true,
            shaping: params.shaping(app.tokenizer.eos_ids()),
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
            "model": self.fields.model(),
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
        if self.fields.flag("return_token_ids") {
            choice["token_ids"] = answer.output_ids.clone().into();
            choice["prompt_token_ids"] = prompt.into();
        }
        choice
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
        "model": wanted.fields.model(),
    });
    let include_usage = wanted.fields.includes_usage();
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
