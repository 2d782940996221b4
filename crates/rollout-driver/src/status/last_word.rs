//! The last word: what the controller learns of a driver that has ended. At most 3 KiB of JSON.

use std::io;
use std::path::Path;

use rollout_engine::{JobResult, Reason};
use serde_json::{Value, json};

use super::Board;
use super::board::VERSION;
use crate::error::{DriverError, chain};
use crate::unusable::Unusable;

/// A termination message holds 4096 bytes; we leave room.
const LIMIT: usize = 3072;

/// What is said.
#[derive(Debug, Clone, PartialEq)]
pub struct LastWord {
    word: Value,
}

impl LastWord {
    /// The last word of a run with this outcome.
    pub fn new(
        board: &Board,
        outcome: &Result<JobResult, DriverError>,
        totals: (u64, u64),
        output: &Path,
    ) -> Self {
        match outcome {
            Ok(result) if result.reason == Reason::Interrupted => {
                let result =
                    json!({"reason": "interrupted", "message": result.message, "success": false});
                Self::of(board, &result, totals, output)
            }
            Ok(result) => Self::of(board, &json!(result), totals, output),
            Err(error) => Self::failed(board, error, totals, output),
        }
    }

    /// The last word of a driver that could not go on, or not even begin: the job's end, where no start could do better.
    pub fn failed(board: &Board, error: &DriverError, totals: (u64, u64), output: &Path) -> Self {
        let reason = error.unusable().map_or("crashed", Unusable::reason);
        let result = json!({"reason": reason, "message": chain(error), "success": false});
        Self::of(board, &result, totals, output)
    }

    /// `totals` are files and samples of the output.
    fn of(board: &Board, result: &Value, (files, samples): (u64, u64), output: &Path) -> Self {
        let view = board.json();
        let part = |name: &str| view.get(name).cloned().unwrap_or(Value::Null);
        Self {
            word: json!({
                "version": VERSION,
                "result": result,
                "progress": part("progress"),
                "teardown": part("teardown"),
                "output": {"url": output.display().to_string(), "samples": samples, "files": files},
                "recentFailures": part("recentFailures"),
            }),
        }
    }

    /// The JSON text, bounded: details go before the result does.
    pub fn text(&self) -> String {
        let mut word = self.word.clone();
        let mut text = word.to_string();
        // The most frequent failures come first, and stay longest.
        while text.len() > LIMIT
            && let Some(Value::Array(failures)) = word.get_mut("recentFailures")
            && failures.len() > 1
        {
            failures.pop();
            text = word.to_string();
        }
        for detail in [
            "/recentFailures",
            "/teardown/troubles",
            "/progress",
            "/teardown",
        ] {
            if text.len() <= LIMIT {
                return text;
            }
            if let Some(value) = word.pointer_mut(detail) {
                *value = Value::Null;
            }
            text = word.to_string();
        }
        if text.len() > LIMIT
            && let Some(Value::String(message)) = word.pointer_mut("/result/message")
        {
            *message = message.chars().take(512).collect();
            text = word.to_string();
        }
        text
    }

    /// Writes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.text())
    }
}
