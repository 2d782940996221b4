//! The stream of an engine, on its way to client and record at the same time.
//!
//! ```text
//!   engine --events--> role, content, reasoning, calls ----------------------------> client, at once
//!             `------> log-probabilities, finish reason, ids, usage --> whole reply --check--> commit --> finish reason, usage, [DONE]
//! ```
//!
//! SGLang's chat stream carries no `meta_info`, but from 0.5.23 on the ids of prompt and output in its last events, when they are asked
//! for (`sglext`), and log-probabilities beside the deltas. The client's stream ends when the turn is recorded: a stream that breaks
//! off, or whose counts do not agree, ends with an `error` event and without `[DONE]`.
//!
//! In one piece, SGLang trims what a message says before it calls tools; in a stream it does not. The chat template writes the message of
//! the next request as it was told, so that the line break before a call would be there twice, and the turns could not be merged. So blanks
//! wait for what comes after them: before a call they go.
//!
//! Caveats: an engine without a parser of calls or reasoning drops the log-probability of a step that has no new text (an end token,
//! half a character), so its stream is not used. The version of the weights is not in a stream: the engine is asked just before, so a turn
//! across an update counts as one of the older weights.

mod chunk;
mod gather;

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::watch;

use self::chunk::Chunk;
use self::gather::Gathered;
use super::{Progress, Reply};
use crate::engines::Line;
use crate::error::ApiError;
use crate::sse::{DONE, Splitter};

/// What a client wants of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    /// Usage in an event of its own.
    pub(crate) include_usage: bool,
    /// Log-probabilities beside the deltas.
    pub(crate) log_probs: bool,
    /// The message may call tools.
    pub(crate) tools: bool,
}

/// A stream that came to its end.
#[derive(Debug)]
pub(super) struct Streamed {
    gathered: Gathered,
    /// The client's last events, for when the turn is recorded.
    pub(super) end: Vec<Bytes>,
}

impl Streamed {
    /// The reply that the engine would have given without a stream.
    pub(super) fn reply(&self, weight_version: Option<&str>, took: Duration) -> Bytes {
        Bytes::from(self.gathered.reply(weight_version, took))
    }
}

/// How a stream ended.
#[derive(Debug)]
pub(super) enum Ended {
    Well(Box<Streamed>),
    /// The engine said in its stream what went wrong.
    Failed(Reply),
}

/// Reads a stream to its end and tells what may be told on the way.
///
/// There is no time limit between two pieces: an engine that is paused for new weights is silent for long. One that is gone is noticed
/// by its line.
pub(super) async fn read(
    line: &Line,
    body: Incoming,
    limit: usize,
    options: StreamOptions,
    progress: &watch::Sender<Progress>,
) -> Result<Ended, ApiError> {
    let reading = read_pieces(line, body, limit, options, progress);
    line.unless_silent(reading).await?
}

async fn read_pieces(
    line: &Line,
    mut body: Incoming,
    limit: usize,
    options: StreamOptions,
    progress: &watch::Sender<Progress>,
) -> Result<Ended, ApiError> {
    let mut reader = Reader::new(options);
    let mut splitter = Splitter::default();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            // The last word was said before.
            Err(_) if reader.done => break,
            Err(error) => return Err(broke_off(&error.to_string())),
        };
        line.heard();
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        bytes += piece.len();
        if bytes > limit {
            return Err(ApiError::BadReply(format!(
                "the engine's stream is larger than {limit} bytes"
            )));
        }
        splitter.push(&piece);
        while let Some(event) = splitter.next() {
            if let Some(error) = reader.event(&event)? {
                return Ok(Ended::Failed(error));
            }
        }
        let told = reader.take_told();
        if !told.is_empty() {
            progress.send_modify(|progress| progress.events.push(told));
        }
    }
    reader.end().map(|streamed| Ended::Well(Box::new(streamed)))
}

fn broke_off(why: &str) -> ApiError {
    ApiError::Transport(format!("the engine's stream broke off: {why}"))
}

struct Reader {
    options: StreamOptions,
    gathered: Gathered,
    /// For the client, now.
    told: String,
    /// For the client, once the turn is recorded.
    held: String,
    /// Blanks at the end of the content so far, which nobody was told yet.
    blanks: String,
    done: bool,
}

impl Reader {
    fn new(options: StreamOptions) -> Self {
        Self {
            options,
            gathered: Gathered::default(),
            told: String::new(),
            held: String::new(),
            blanks: String::new(),
            done: false,
        }
    }

    /// Takes an event. Answers the error that it states, if it does.
    fn event(&mut self, data: &[u8]) -> Result<Option<Reply>, ApiError> {
        if data == b"[DONE]" {
            self.done = true;
            return Ok(None);
        }
        let bad = |what: String| ApiError::BadReply(format!("an event of the engine: {what}"));
        let text = std::str::from_utf8(data).map_err(|error| bad(error.to_string()))?;
        let mut chunk = Chunk::read(text).map_err(|error| bad(error.to_string()))?;
        if let Some(error) = chunk.error {
            return Ok(Some(failed(error)));
        }
        if self.options.tools {
            self.hold_blanks(&mut chunk);
        }
        if chunk.finish_reason.is_some() {
            self.held
                .push_str(&chunk.for_client(self.options.log_probs));
        } else if chunk.says_something() || (self.options.log_probs && chunk.entries.is_some()) {
            self.told
                .push_str(&chunk.for_client(self.options.log_probs));
        }
        self.gathered.add(&mut chunk);
        Ok(None)
    }

    /// Keeps blanks at the end of the content back until it is known whether a call follows.
    fn hold_blanks(&mut self, chunk: &mut Chunk<'_>) {
        let content = chunk.delta.content.as_deref().unwrap_or_default();
        if !content.is_empty() {
            let mut content = std::mem::take(&mut self.blanks) + content;
            self.blanks = content.split_off(content.trim_end().len());
            chunk.set_content(Some(content).filter(|content| !content.is_empty()));
        }
        if chunk.delta.tool_calls.is_some() || self.gathered.has_calls() {
            self.blanks.clear();
        }
        if chunk.finish_reason.is_some() && !self.blanks.is_empty() {
            let blanks = std::mem::take(&mut self.blanks);
            self.told.push_str(&self.gathered.add_content(&blanks));
        }
    }

    fn take_told(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.told))
    }

    fn end(self) -> Result<Streamed, ApiError> {
        if !self.done {
            return Err(broke_off("it has no [DONE]"));
        }
        if !self.gathered.has_end() {
            return Err(ApiError::BadReply(
                "the engine's stream does not say why it ended".to_owned(),
            ));
        }
        let mut end = vec![Bytes::from(self.held)];
        if self.options.include_usage {
            end.extend(self.gathered.usage_event().map(Bytes::from));
        }
        end.push(Bytes::from_static(DONE.as_bytes()));
        Ok(Streamed {
            gathered: self.gathered,
            end,
        })
    }
}

/// The answer to a request that the engine ended with an error in its stream.
fn failed(error: &str) -> Reply {
    let parsed: Value = serde_json::from_str(error).unwrap_or_default();
    let status = parsed["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| (400..600).contains(code))
        .and_then(|code| StatusCode::from_u16(code).ok());
    let mut reply = Reply::json(format!("{{\"error\":{error}}}"));
    reply.status = status.unwrap_or(StatusCode::BAD_GATEWAY);
    reply
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "events are written where they are used"
)]
mod tests;
