//! The event stream of a chat: deltas.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::answer::{new_call_id, token_logprobs};
use super::request::ChatRequest;
use crate::engine::Ticket;
use crate::http::App;
use crate::http::generate::{Answer, AnswerOptions};
use crate::http::openai::{self, Extension, Facts, LastEvents, finish};
use crate::http::reply;
use crate::wire::{reasoning, tool_calls};

/// What one sample of the stream has sent.
struct Sample {
    app: Arc<App>,
    chat: Arc<ChatRequest>,
    head: Arc<Head>,
    index: usize,
    reasoning_sent: usize,
    content_sent: usize,
    calls_sent: usize,
    logprobs_sent: usize,
    opened: bool,
}

/// What every event repeats.
struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    fn event(&self, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

/// The answer.
pub(super) fn response(
    app: &Arc<App>,
    chat: ChatRequest,
    tickets: Vec<Ticket>,
    options: Vec<AnswerOptions>,
) -> Response {
    let head = Arc::new(Head {
        id: options
            .first()
            .map(|options| options.rid.clone())
            .unwrap_or_default(),
        created: app.created(),
        model: chat.model().to_owned(),
    });
    let last = LastEvents {
        usage: chat.include_usage.then(|| head.event(&json!([]))),
        extension: extension(&chat, &head, &tickets),
    };
    let chat = Arc::new(chat);
    openai::stream(app, tickets, options, last, |index| {
        let mut sample = Sample {
            app: app.clone(),
            chat: chat.clone(),
            head: head.clone(),
            index,
            reasoning_sent: 0,
            content_sent: 0,
            calls_sent: 0,
            logprobs_sent: 0,
            opened: false,
        };
        move |answer: &Answer| Bytes::from(sample.events(answer).concat())
    })
}

/// The event with the ids of prompt and outputs, where they are asked for. It lacks the outputs', which are known at the end.
fn extension(chat: &ChatRequest, head: &Head, tickets: &[Ticket]) -> Option<Extension> {
    let with_output = chat.flag("return_output_ids_in_sglext");
    let prompt = chat
        .flag("return_input_ids_in_sglext")
        .then(|| tickets.first().map(|ticket| ticket.job().prompt.to_vec()))
        .flatten();
    (with_output || prompt.is_some()).then(|| Extension {
        event: head.event(&json!([])),
        prompt,
        with_output,
    })
}

impl Sample {
    /// The events of one chunk: the opening, new reasoning, content and calls, the end.
    fn events(&mut self, chunk: &Answer) -> Vec<Bytes> {
        let mut events = Vec::new();
        if !self.opened {
            self.opened = true;
            events.push(self.delta(
                &[("role", "assistant".into()), ("content", "".into())],
                None,
            ));
        }
        let ended = chunk.ending.is_some();
        let mut logprobs = self.new_logprobs(chunk);
        self.logprobs_sent = chunk.output_ids.len();
        for field in self.new_texts(&chunk.text, ended) {
            events.push(self.delta(&[field], logprobs.take().as_ref()));
        }
        for call in self.new_calls(&chunk.text) {
            events.push(self.delta(&[("tool_calls", json!([call]))], None));
        }
        // Without a parser, SGLang loses those of a step that has no new text, such as the end token's.
        if logprobs.is_some() && self.app.has_parser() {
            events.push(self.delta(&[], logprobs.take().as_ref()));
        }
        if ended {
            let facts = Facts::of(&chunk.meta_info);
            let (reason, matched) = finish(facts.finish_reason, chunk.ending, self.calls_sent > 0);
            let choice = json!([{
                "index": self.index,
                "delta": {"reasoning_content": null},
                "logprobs": null,
                "finish_reason": reason,
                "matched_stop": matched,
            }]);
            events.push(reply::event(&self.head.event(&choice)));
        }
        events
    }

    fn delta(&self, fields: &[(&str, Value)], logprobs: Option<&Value>) -> Bytes {
        let mut delta = Map::new();
        delta.insert("reasoning_content".into(), Value::Null);
        for (name, value) in fields {
            delta.insert((*name).into(), value.clone());
        }
        let choice = json!([{
            "index": self.index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": null,
            "matched_stop": null,
        }]);
        reply::event(&self.head.event(&choice))
    }

    fn new_logprobs(&mut self, chunk: &Answer) -> Option<Value> {
        let facts = Facts::of(&chunk.meta_info);
        let entries = token_logprobs(&self.app, facts.logprobs?, self.logprobs_sent);
        if entries.is_empty() {
            return None;
        }
        Some(json!({"content": entries}))
    }

    /// New reasoning and new content. Calls are no content; what may become the tag of a call is held back until the end.
    fn new_texts(&mut self, text: &str, ended: bool) -> Vec<(&'static str, Value)> {
        let mut fields = Vec::new();
        let separates =
            self.app.separates_reasoning() && !self.chat.flag_is_false("separate_reasoning");
        let content = if separates {
            let parted = reasoning::part(text);
            let thought = parted.reasoning.unwrap_or_default();
            if let Some(new) = thought
                .get(self.reasoning_sent..)
                .filter(|new| !new.is_empty())
            {
                fields.push(("reasoning_content", new.into()));
                self.reasoning_sent = thought.len();
            }
            parted.content
        } else {
            text.to_owned()
        };
        let end = match (self.chat.parses_tool_calls(&self.app), ended) {
            (true, false) => tool_calls::content_end(&content),
            (true, true) => content.find(tool_calls::OPEN).unwrap_or(content.len()),
            (false, _) => content.len(),
        };
        if let Some(new) = content
            .get(self.content_sent..end)
            .filter(|new| !new.is_empty())
        {
            fields.push(("content", new.into()));
            self.content_sent = end;
        }
        fields
    }

    /// Calls that are complete: one delta with the name, one with the arguments.
    fn new_calls(&mut self, text: &str) -> Vec<Value> {
        if !self.chat.parses_tool_calls(&self.app) {
            return Vec::new();
        }
        let (_, calls) = tool_calls::parse(text);
        let mut deltas = Vec::new();
        for (index, call) in calls.iter().enumerate().skip(self.calls_sent) {
            deltas.push(json!({
                "id": new_call_id(), "index": index, "type": "function",
                "function": {"name": call.name, "arguments": ""},
            }));
            deltas.push(json!({
                "id": null, "index": index, "type": "function",
                "function": {"name": null, "arguments": call.arguments},
            }));
        }
        self.calls_sent = self.calls_sent.max(calls.len());
        deltas
    }
}
