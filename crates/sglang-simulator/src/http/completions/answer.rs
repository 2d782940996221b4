//! The answer of a completion, whole or as a stream, in the key order of SGLang.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::request::CompletionRequest;
use crate::engine::Ticket;
use crate::http::App;
use crate::http::generate::{Answer, AnswerOptions};
use crate::http::openai::{self, Facts, LastEvents, finish, metadata, usage};
use crate::http::reply;
use crate::wire::logprobs::Logprobs;

/// The whole answer.
pub(super) fn completion(
    app: &App,
    wanted: &CompletionRequest,
    prompts: &[Arc<[u32]>],
    answers: &[Answer],
) -> Value {
    let facts: Vec<_> = answers
        .iter()
        .map(|answer| Facts::of(&answer.meta_info))
        .collect();
    let choices: Vec<_> = answers
        .iter()
        .zip(prompts)
        .enumerate()
        .map(|(index, (answer, prompt))| choice(wanted, index, prompt, answer))
        .collect();
    json!({
        "id": facts.first().map(|facts| facts.id),
        "object": "text_completion",
        "created": app.created(),
        "model": wanted.0.model(),
        "choices": choices,
        "usage": usage(facts.iter().copied()),
        "metadata": facts.first().map(metadata),
    })
}

fn choice(wanted: &CompletionRequest, index: usize, prompt: &[u32], answer: &Answer) -> Value {
    let facts = Facts::of(&answer.meta_info);
    let (finish_reason, matched) = finish(facts.finish_reason, answer.ending, false);
    let mut choice = json!({
        "index": index,
        "text": answer.text,
        "logprobs": facts.logprobs.map(|lists| legacy_logprobs(lists, 0)),
        "finish_reason": finish_reason,
        "matched_stop": matched,
    });
    if wanted.0.flag("return_token_ids") {
        choice["token_ids"] = answer.output_ids.clone().into();
        choice["prompt_token_ids"] = prompt.into();
    }
    choice
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

/// The answer as a stream.
pub(super) fn stream(
    app: &Arc<App>,
    wanted: &CompletionRequest,
    tickets: Vec<Ticket>,
    options: Vec<AnswerOptions>,
) -> Response {
    let head = json!({
        "id": options.first().map(|options| options.rid.clone()),
        "object": "text_completion",
        "created": app.created(),
        "model": wanted.0.model(),
    });
    let usage = wanted.0.includes_usage().then(|| {
        let mut event = head.clone();
        event["choices"] = json!([]);
        event
    });
    let last = LastEvents {
        usage,
        extension: None,
    };
    openai::stream(app, tickets, options, last, |index| {
        let (head, mut sent, mut tokens) = (head.clone(), 0, 0);
        move |answer: &Answer| {
            let event = chunk(&head, index, answer, sent, tokens);
            sent = sent.max(answer.text.len());
            tokens = answer.output_ids.len();
            event
        }
    })
}

fn chunk(head: &Value, index: usize, answer: &Answer, sent: usize, tokens: usize) -> Bytes {
    let facts = Facts::of(&answer.meta_info);
    let (finish_reason, matched) = match answer.ending {
        Some(_) => finish(facts.finish_reason, answer.ending, false),
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
