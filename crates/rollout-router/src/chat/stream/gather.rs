//! Puts the events of a stream together to the reply that the engine would have given without a stream.
//!
//! So that streamed turns pass the same checks and leave the same records as all others. Ids and log-probabilities are copied as text,
//! digit by digit.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::chunk::{Chunk, Delta, Extension, Speculation};

/// What a stream has said so far.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    id: Option<String>,
    created: Option<String>,
    model: Option<String>,
    role: Option<String>,
    content: String,
    reasoning: Option<String>,
    calls: Vec<Map<String, Value>>,
    entries: String,
    finish_reason: Option<String>,
    matched_stop: Option<String>,
    usage: Option<String>,
    prompt_ids: Option<String>,
    output_ids: Option<String>,
    cached_tokens: Option<i64>,
    speculation: Option<Speculation>,
}

impl Gathered {
    pub(super) fn add(&mut self, chunk: &mut Chunk<'_>) {
        if self.id.is_none() {
            keep(&mut self.id, chunk.id);
            keep(&mut self.created, chunk.created);
            keep(&mut self.model, chunk.model);
        }
        keep(&mut self.finish_reason, chunk.finish_reason);
        keep(&mut self.matched_stop, chunk.matched_stop);
        keep(&mut self.usage, chunk.usage);
        if let Some(entries) = chunk.entries.filter(|entries| !entries.is_empty()) {
            if !self.entries.is_empty() {
                self.entries.push(',');
            }
            self.entries.push_str(entries);
        }
        self.extend(std::mem::take(&mut chunk.delta));
        let Extension {
            prompt_ids,
            output_ids,
            cached_tokens,
            speculation,
        } = &chunk.extension;
        keep(&mut self.prompt_ids, *prompt_ids);
        keep(&mut self.output_ids, *output_ids);
        self.cached_tokens = cached_tokens.or(self.cached_tokens);
        self.speculation = speculation.or(self.speculation);
    }

    fn extend(&mut self, delta: Delta) {
        let Delta {
            role,
            content,
            reasoning_content,
            tool_calls,
        } = delta;
        self.role = self.role.take().or(role);
        self.content.push_str(&content.unwrap_or_default());
        if let Some(more) = reasoning_content {
            self.reasoning.get_or_insert_default().push_str(&more);
        }
        for call in tool_calls.unwrap_or_default() {
            self.extend_call(call);
        }
    }

    /// A call comes with its name first; its arguments follow in pieces, under the call's position.
    fn extend_call(&mut self, mut piece: Map<String, Value>) {
        let position = piece.get("index").and_then(Value::as_u64);
        let known = self.calls.iter_mut().find(|call| {
            position.is_some() && call.get("index").and_then(Value::as_u64) == position
        });
        let Some(call) = known else {
            if position.is_none() {
                piece.insert("index".to_owned(), json!(self.calls.len()));
            }
            self.calls.push(piece);
            return;
        };
        let more = piece
            .get("function")
            .and_then(|function| function.get("arguments"))
            .and_then(Value::as_str);
        let Some(more) = more else { return };
        if let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) {
            let before = function.get("arguments").and_then(Value::as_str);
            let joined = before.unwrap_or_default().to_owned() + more;
            function.insert("arguments".to_owned(), Value::from(joined));
        }
    }

    /// Whether the stream said how the generation ended.
    pub(super) fn has_end(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Whether the message calls tools.
    pub(super) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// An event of the stream that has usage and no choice.
    pub(super) fn usage_event(&self) -> Option<String> {
        let usage = self.usage.as_ref()?;
        Some(self.event(&format!("\"choices\":[],\"usage\":{usage}")))
    }

    /// Adds content that no event of the engine has, and gives the event that tells it.
    pub(super) fn add_content(&mut self, content: &str) -> String {
        self.content.push_str(content);
        let choices = json!([{
            "index": 0,
            "delta": {"content": content},
            "logprobs": null,
            "finish_reason": null,
            "matched_stop": null,
        }]);
        self.event(&format!("\"choices\":{choices}"))
    }

    fn event(&self, rest: &str) -> String {
        let (id, created, model) = (
            or_null(self.id.as_ref()),
            or_null(self.created.as_ref()),
            or_null(self.model.as_ref()),
        );
        format!(
            "data: {{\"id\":{id},\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":{model},{rest}}}\n\n"
        )
    }

    /// The reply. `weight_version` and the engine's time are not in a stream.
    pub(super) fn reply(&self, weight_version: Option<&str>, took: Duration) -> String {
        let (id, created, model) = (
            or_null(self.id.as_ref()),
            or_null(self.created.as_ref()),
            or_null(self.model.as_ref()),
        );
        let message = self.message();
        let meta = self.meta_info(took);
        let finish_reason = or_null(self.finish_reason.as_ref());
        let matched_stop = or_null(self.matched_stop.as_ref());
        let entries = &self.entries;
        let mut reply = format!(
            "{{\"id\":{id},\"object\":\"chat.completion\",\"created\":{created},\"model\":{model},\"choices\":[{{\"index\":0,\"message\":{message},\"logprobs\":{{\"content\":[{entries}]}},\"finish_reason\":{finish_reason},\"matched_stop\":{matched_stop}"
        );
        for (name, ids) in [
            ("prompt_token_ids", &self.prompt_ids),
            ("response_token_ids", &self.output_ids),
        ] {
            if let Some(ids) = ids {
                let _ = write!(reply, ",\"{name}\":{ids}");
            }
        }
        let _ = write!(reply, ",\"meta_info\":{meta}}}]");
        if let Some(usage) = &self.usage {
            let _ = write!(reply, ",\"usage\":{usage}");
        }
        if let Some(version) = weight_version {
            let metadata = json!({"weight_version": version});
            let _ = write!(reply, ",\"metadata\":{metadata}");
        }
        reply.push('}');
        reply
    }

    fn message(&self) -> Value {
        let role = self.role.as_deref().unwrap_or("assistant");
        let mut message = json!({
            "role": role,
            "content": self.content,
            "reasoning_content": self.reasoning,
        });
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.iter().cloned().map(Value::Object).collect();
        }
        message
    }

    /// The counters, under the names that replies without a stream have.
    fn meta_info(&self, took: Duration) -> Value {
        let mut meta = json!({"e2e_latency": took.as_secs_f64()});
        let usage: Option<Value> = self
            .usage
            .as_deref()
            .and_then(|it| serde_json::from_str(it).ok());
        let usage = usage.unwrap_or_default();
        if usage["completion_tokens"].is_i64() || usage["completion_tokens"].is_u64() {
            meta["completion_tokens"] = usage["completion_tokens"].clone();
        }
        let cached = self
            .cached_tokens
            .or_else(|| usage["prompt_tokens_details"]["cached_tokens"].as_i64());
        if let Some(cached) = cached {
            meta["cached_tokens"] = json!(cached);
        }
        if let Some(speculation) = self.speculation {
            meta["spec_accept_token_num"] = json!(speculation.accepted);
            meta["spec_draft_token_num"] = json!(speculation.proposed);
            meta["spec_verify_ct"] = json!(speculation.verified);
        }
        meta
    }
}

fn keep(place: &mut Option<String>, text: Option<&str>) {
    if let Some(text) = text {
        *place = Some(text.to_owned());
    }
}

fn or_null(text: Option<&String>) -> &str {
    text.map_or("null", String::as_str)
}
