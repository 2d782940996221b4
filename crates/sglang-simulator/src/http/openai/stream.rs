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
use crate::http::generate::{Answer, AnswerOptions, Chunks};
use crate::http::reply;

/// Answers with a stream. `writer` makes what writes the events of the output with an index; `usage_event` is the event that tells the usage, without
/// it, where it is asked for.
pub(in crate::http) fn stream<W>(
    app: &Arc<App>,
    tickets: Vec<Ticket>,
    options: Vec<AnswerOptions>,
    usage_event: Option<Value>,
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
                        ended.lock().push(answer.meta_info.clone());
                    }
                    write(&answer)
                },
                as_openai,
            );
            events.boxed()
        })
        .collect();
    let end = futures_util::stream::once(async move {
        let mut last = Vec::new();
        if let Some(mut event) = usage_event {
            event["usage"] = usage(ended.lock().iter().map(Facts::of));
            last.extend_from_slice(&reply::event(&event));
        }
        last.extend_from_slice(&reply::done_event());
        Ok(Bytes::from(last))
    });
    reply::event_stream(Body::from_stream(
        futures_util::stream::select_all(outputs).chain(end),
    ))
}
