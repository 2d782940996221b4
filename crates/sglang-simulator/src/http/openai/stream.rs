//! The event stream of an answer: the chunks of all outputs as they come, then what they used when that is asked for, then the end.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;

use super::{Facts, as_openai, usage};
use crate::engine::Ticket;
use crate::http::App;
use crate::http::generate::{Answer, AnswerOptions, Chunks, Meta};
use crate::http::reply;

/// What comes after the outputs, where it is asked for.
#[derive(Default)]
pub(in crate::http) struct LastEvents {
    /// The event that tells the usage, without it.
    pub(in crate::http) usage: Option<Value>,
    pub(in crate::http) extension: Option<Extension>,
}

/// The event with SGLang's own extension.
pub(in crate::http) struct Extension {
    /// The event without it.
    pub(in crate::http) event: Value,
    /// Ids of the prompt, if they are wanted.
    pub(in crate::http) prompt: Option<Vec<u32>>,
    /// Whether the ids of the outputs are.
    pub(in crate::http) with_output: bool,
}

impl Extension {
    fn into_event(self, outputs: &[Vec<u32>]) -> Bytes {
        let mut event = self.event;
        let mut fields = serde_json::Map::new();
        if let Some(prompt) = self.prompt {
            fields.insert("input_ids".into(), prompt.into());
        }
        if self.with_output {
            let outputs = outputs.iter().cloned().map(Value::from).collect();
            fields.insert("output_ids".into(), outputs);
        }
        event["sglext"] = fields.into();
        reply::event(&event)
    }
}

/// What a stream knows of an output that has ended.
struct Ended {
    meta: Meta,
    ids: Vec<u32>,
}

/// Answers with a stream. `writer` makes what writes the events of the output with an index.
pub(in crate::http) fn stream<W>(
    app: &Arc<App>,
    tickets: Vec<Ticket>,
    options: Vec<AnswerOptions>,
    last: LastEvents,
    writer: impl Fn(usize) -> W,
) -> Response
where
    W: FnMut(&Answer) -> Bytes + Send + 'static,
{
    let ended = Arc::new(Mutex::new(Vec::new()));
    let outputs: Vec<_> = tickets
        .into_iter()
        .zip(options)
        .enumerate()
        .map(|(index, (ticket, options))| {
            let (mut write, ended) = (writer(index), Arc::clone(&ended));
            let events = Chunks::new(app.clone(), ticket, options).into_events(
                move |answer| {
                    if answer.ending.is_some() {
                        ended.lock().push(Ended {
                            meta: answer.meta_info.clone(),
                            ids: answer.output_ids.clone(),
                        });
                    }
                    write(&answer)
                },
                as_openai,
            );
            events.boxed()
        })
        .collect();
    let end = futures_util::stream::once(async move {
        let LastEvents {
            usage: usage_event,
            extension,
        } = last;
        let ended = ended.lock();
        let mut last = Vec::new();
        if let Some(extension) = extension {
            let outputs: Vec<Vec<u32>> = ended.iter().map(|output| output.ids.clone()).collect();
            last.push(Ok(extension.into_event(&outputs)));
        }
        if let Some(mut event) = usage_event {
            event["usage"] = usage(ended.iter().map(|output| Facts::of(&output.meta)));
            last.push(Ok(reply::event(&event)));
        }
        last.push(Ok(reply::done_event()));
        futures_util::stream::iter(last)
    });
    let end = end.flatten();
    reply::event_stream(Body::from_stream(
        futures_util::stream::select_all(outputs).chain(end),
    ))
}
