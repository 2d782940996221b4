//! Server-sent events of an answer.

use std::collections::VecDeque;

use serde_json::Value;
use tokio::time::timeout;

use crate::engine::DEADLINE;

/// The events of a stream as they arrive.
pub(crate) struct Events {
    response: reqwest::Response,
    buffer: Vec<u8>,
    ready: VecDeque<String>,
}

impl Events {
    /// The events of an answer that has just begun.
    pub(crate) fn new(response: reqwest::Response) -> Self {
        Self {
            response,
            buffer: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// The next event; `None` after `[DONE]`, which must be the last thing.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                if event != "[DONE]" {
                    return Some(serde_json::from_str(&event).unwrap());
                }
                assert!(
                    self.ready.is_empty() && self.buffer.is_empty(),
                    "something comes after [DONE]"
                );
                return None;
            }
            let chunk = timeout(DEADLINE, self.response.chunk())
                .await
                .expect("no event in time")
                .unwrap();
            let chunk = chunk.expect("the stream ended without [DONE]");
            self.buffer.extend_from_slice(&chunk);
            while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
                let event = std::str::from_utf8(&event).unwrap().trim_end();
                self.ready
                    .push_back(event.strip_prefix("data: ").unwrap().to_owned());
            }
        }
    }
}
