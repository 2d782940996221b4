//! What the API server's audit log has about a job: every write, with who made it and how it ended.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

/// A write that the API server took.
pub(crate) struct Write {
    verb: String,
    resource: String,
    name: String,
}

impl Write {
    /// The name of the Pod that it made.
    pub(crate) fn pod_made(&self) -> Option<&str> {
        (self.verb == "create" && self.resource == "pods").then_some(&*self.name)
    }
}

/// Writes of the operator to the objects of a job, and to the job. What was refused or only tried wrote nothing.
pub(crate) fn writes(namespace: &str, job: &str) -> Vec<Write> {
    let kubeconfig = PathBuf::from(std::env::var_os("KUBECONFIG").unwrap());
    let log = kubeconfig.parent().unwrap().join("log/audit.log");
    let text = std::fs::read_to_string(&log).unwrap();
    let entries = text.lines().filter(|line| line.contains(namespace));
    entries
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|entry| {
            let agent = entry["userAgent"].as_str().unwrap_or_default();
            let code = entry["responseStatus"]["code"].as_i64().unwrap_or(0);
            let uri = entry["requestURI"].as_str().unwrap_or_default();
            agent.starts_with("rollout-operator/")
                && entry["objectRef"]["namespace"] == namespace
                && code < 400
                && !uri.contains("dryRun")
        })
        .filter(|entry| {
            let name = entry["objectRef"]["name"].as_str().unwrap_or_default();
            let uri = entry["requestURI"].as_str().unwrap_or_default();
            // What is deleted together is named by its labels.
            let is_of_all = uri.contains(&format!("job%3D{job}%2C"));
            name == job || name.starts_with(&format!("{job}-")) || is_of_all
        })
        .map(|entry| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let object = &entry["objectRef"];
            let part = object["subresource"]
                .as_str()
                .map(|part| format!("/{part}"));
            Write {
                verb: text(&entry["verb"]),
                resource: text(&object["resource"]) + &part.unwrap_or_default(),
                name: text(&object["name"]),
            }
        })
        .collect()
}

/// Names of the agents' Pods that were made, as often as they were.
pub(super) fn agents_made(writes: &[Write]) -> Vec<String> {
    let made = writes.iter().filter_map(Write::pod_made);
    made.filter(|name| name.contains("-agent-"))
        .map(str::to_owned)
        .collect()
}

/// How many writes there were of each kind.
pub(super) fn by_kind(writes: &[Write]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        *counts
            .entry(format!("{} {}", write.verb, write.resource))
            .or_default() += 1;
    }
    counts
}

/// Writes without those that tell progress, whose number follows from how long the job took.
pub(super) fn without_progress(writes: &[Write]) -> usize {
    writes
        .iter()
        .filter(|write| write.resource != "rolloutjobs/status")
        .count()
}
