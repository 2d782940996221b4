//! The answer of a chat, in the key order of SGLang.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::request::ChatRequest;
use crate::config::Profile;
use crate::http::App;
use crate::http::generate::{Answer, new_rid};
use crate::http::openai::{Facts, finish, metadata, usage};
use crate::wire::logprobs::{Logprobs, Triple};
use crate::wire::{reasoning, tool_calls};

/// One token of `logprobs.content`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct TokenLogprob {
    token: String,
    bytes: Vec<u8>,
    logprob: f64,
    top_logprobs: Vec<TopLogprob>,
    /// Miles's branch only.
    #[serde(skip_serializing_if = "Option::is_none")]
    token_id: Option<u32>,
}

#[derive(Debug, Clone, Serialize)]
struct TopLogprob {
    token: String,
    bytes: Vec<u8>,
    logprob: f64,
}

/// The text of an answer in its parts.
pub(super) struct Parts {
    pub(super) reasoning: Option<String>,
    pub(super) content: String,
    pub(super) calls: Vec<tool_calls::ToolCall>,
}

/// Parts a whole text.
pub(super) fn parts(app: &App, chat: &ChatRequest, text: &str) -> Parts {
    let (reasoning, content) =
        if app.separates_reasoning() && !chat.flag_is_false("separate_reasoning") {
            let parted = reasoning::part(text);
            (parted.reasoning, parted.content)
        } else {
            (None, text.to_owned())
        };
    if !chat.parses_tool_calls(app) {
        return Parts {
            reasoning,
            content,
            calls: Vec::new(),
        };
    }
    let (content, calls) = tool_calls::parse(&content);
    Parts {
        reasoning,
        content,
        calls,
    }
}

/// The whole answer.
pub(in crate::http) fn completion(
    app: &App,
    chat: &ChatRequest,
    prompt: &[u32],
    answers: Vec<Answer>,
) -> Value {
    let first = answers.first().map(|answer| Facts::of(&answer.meta_info));
    let id = first
        .as_ref()
        .map(|facts| facts.id.to_owned())
        .unwrap_or_default();
    let metadata = first.as_ref().map(metadata).unwrap_or_default();
    let usage = usage(answers.iter().map(|answer| Facts::of(&answer.meta_info)));
    let output_ids: Vec<_> = answers
        .iter()
        .map(|answer| answer.output_ids.clone())
        .collect();
    let choices: Vec<_> = answers
        .into_iter()
        .enumerate()
        .map(|(index, answer)| choice(app, chat, prompt, index, answer))
        .collect();
    let mut body = json!({
        "id": id,
        "object": "chat.completion",
        "created": app.created(),
        "model": chat.model(),
        "choices": choices,
        "usage": usage,
        "metadata": metadata,
    });
    let mut extension = Map::new();
    if chat.flag("return_input_ids_in_sglext") {
        extension.insert("input_ids".into(), prompt.into());
    }
    if chat.flag("return_output_ids_in_sglext") {
        extension.insert("output_ids".into(), output_ids.into());
    }
    if !extension.is_empty() {
        body["sglext"] = extension.into();
    }
    body
}

fn choice(app: &App, chat: &ChatRequest, prompt: &[u32], index: usize, answer: Answer) -> Value {
    let parts = parts(app, chat, &answer.text);
    let facts = Facts::of(&answer.meta_info);
    let logprobs = facts
        .logprobs
        .map(|lists| json!({"content": token_logprobs(app, lists, 0)}));
    let mut message = json!({"role": "assistant", "content": parts.content, "reasoning_content": parts.reasoning});
    if !parts.calls.is_empty() {
        let calls: Vec<_> = parts
            .calls
            .iter()
            .enumerate()
            .map(|(index, call)| call_of(index, call))
            .collect();
        message["tool_calls"] = calls.into();
    }
    let (finish_reason, matched) =
        finish(facts.finish_reason, answer.ending, !parts.calls.is_empty());
    let mut choice = json!({
        "index": index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
        "matched_stop": matched,
    });
    if chat.return_prompt_token_ids || chat.return_token_ids {
        choice["prompt_token_ids"] = prompt.into();
    }
    if chat.return_token_ids {
        choice["response_token_ids"] = answer.output_ids.into();
    }
    if chat.return_meta_info {
        choice["meta_info"] = serde_json::to_value(&answer.meta_info).unwrap_or_default();
    }
    choice
}

/// A call as OpenAI clients read it.
fn call_of(index: usize, call: &tool_calls::ToolCall) -> Value {
    json!({
        "id": new_call_id(),
        "index": index,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    })
}

pub(super) fn new_call_id() -> String {
    format!("call_{}", &new_rid()[..24])
}

/// Entries of `logprobs.content` from a position on.
pub(super) fn token_logprobs(app: &App, lists: &Logprobs, from: usize) -> Vec<TokenLogprob> {
    let with_id = app.config.profile == Profile::MilesFork;
    lists
        .output_token_logprobs
        .iter()
        .enumerate()
        .skip(from)
        .map(|(position, (value, id, text))| {
            let tops = lists
                .output_top_logprobs
                .as_ref()
                .and_then(|tops| tops[position].as_ref());
            let token = text.clone().unwrap_or_default();
            TokenLogprob {
                bytes: app.tokenizer.token_bytes(*id).unwrap_or_default(),
                token,
                logprob: value.unwrap_or_default(),
                top_logprobs: tops
                    .into_iter()
                    .flatten()
                    .map(|top| top_of(app, top))
                    .collect(),
                token_id: with_id.then_some(*id),
            }
        })
        .collect()
}

fn top_of(app: &App, (value, id, text): &Triple) -> TopLogprob {
    let token = text.clone().unwrap_or_default();
    TopLogprob {
        bytes: app.tokenizer.token_bytes(*id).unwrap_or_default(),
        token,
        logprob: value.unwrap_or_default(),
    }
}
