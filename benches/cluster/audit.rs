//! What the API server's audit log has of the operator since a moment: leases apart, every write with how it ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::plane;

/// A write that the operator asked for.
#[derive(Debug)]
pub(crate) struct Write {
    /// `patch rolloutjobs/status`.
    pub(crate) kind: String,
    pub(crate) end: End,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Written,
    /// A dry run.
    Tried,
    Refused,
}

/// The log from a moment on.
pub(crate) struct Audit {
    file: PathBuf,
    from: u64,
}

impl Audit {
    pub(crate) fn from_now() -> Self {
        let file = plane::logs().join("audit.log");
        let from = std::fs::metadata(&file).unwrap().len();
        Self { file, from }
    }

    pub(crate) fn writes(&self) -> Vec<Write> {
        let mut file = File::open(&self.file).unwrap();
        file.seek(SeekFrom::Start(self.from)).unwrap();
        let lines = BufReader::new(file).lines().map(Result::unwrap);
        lines
            .filter(|line| line.contains("rollout-operator/"))
            // The last line may not be whole yet.
            .filter_map(|line| serde_json::from_str(&line).ok())
            .filter_map(|entry| write(&entry))
            .collect()
    }

    /// Waits until the operator has written nothing for a while.
    pub(crate) async fn quiet(&self, a_while: Duration) {
        let mut before = self.writes().len();
        loop {
            tokio::time::sleep(a_while).await;
            let now = self.writes().len();
            if now == before {
                return;
            }
            before = now;
        }
    }
}

fn write(entry: &Value) -> Option<Write> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &entry["objectRef"];
    let is_operator = text(&entry["userAgent"]).starts_with("rollout-operator/");
    if !is_operator || object["resource"] == "leases" {
        return None;
    }
    let part = object["subresource"]
        .as_str()
        .map(|part| format!("/{part}"));
    let end = match entry["responseStatus"]["code"].as_i64() {
        Some(code) if code >= 400 => End::Refused,
        _ if text(&entry["requestURI"]).contains("dryRun") => End::Tried,
        _ => End::Written,
    };
    Some(Write {
        kind: format!(
            "{} {}{}",
            text(&entry["verb"]),
            text(&object["resource"]),
            part.unwrap_or_default()
        ),
        end,
    })
}

/// How many there are of each kind that ended so.
pub(crate) fn by_kind(writes: &[Write], end: End) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for write in writes.iter().filter(|write| write.end == end) {
        *counts.entry(write.kind.as_str()).or_default() += 1;
    }
    counts
}

/// How many ended so.
pub(crate) fn count(writes: &[Write], end: End) -> usize {
    writes.iter().filter(|write| write.end == end).count()
}
