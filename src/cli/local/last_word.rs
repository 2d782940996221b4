//! The driver's last word: how the job ended, and what a person wants to know then.

use std::fmt::Display;

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

use super::progress::{Groups, Outcome, Progress};

/// The driver's last word (docs/protocol.md section 5).
#[derive(Debug)]
pub(super) struct LastWord {
    /// How the job ended.
    pub(super) outcome: Outcome,
    parts: Parts,
}

#[derive(Debug, Deserialize)]
struct Parts {
    result: Option<Outcome>,
    #[serde(default)]
    progress: Progress,
    #[serde(default)]
    teardown: Value,
    #[serde(default)]
    output: Value,
}

impl LastWord {
    /// Reads the text of a last word.
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        let mut parts: Parts =
            serde_json::from_str(text).context("the driver's last word is not readable")?;
        let outcome = parts
            .result
            .take()
            .context("the driver ended without a decision")?;
        Ok(Self { outcome, parts })
    }

    /// What a person wants to know at the end.
    pub(super) fn summary(&self, output: impl Display) -> Vec<String> {
        let word = &self.parts;
        let Groups {
            target,
            kept,
            filtered,
            recycled,
            failed,
            lost,
            in_flight: _,
        } = word.progress.groups;
        let mut lines = vec![format!(
            "groups: {kept} kept of {target}, {filtered} filtered, {recycled} recycled, {failed} failed, {lost} lost"
        )];
        if let Value::Object(teardown) = &word.teardown
            && !teardown.is_empty()
        {
            let parts = teardown.iter().map(|(name, value)| match value {
                Value::String(text) => format!("{name} {text}"),
                other => format!("{name} {other}"),
            });
            lines.push(format!(
                "teardown: {}",
                parts.collect::<Vec<_>>().join(", ")
            ));
        }
        let samples = word.output["samples"].as_u64().unwrap_or_default();
        lines.push(format!("samples: {samples} in {output}"));
        lines
    }
}
