//! Agents' Pods on a real cluster: whom they reach, what runs in them, and many of them.
//!
//! What runs in them is `go/agents`, a static program, and a Python function. What an agent found is in the metadata of its sample.

pub(crate) mod audit;
mod blame;
mod images;
mod many;
mod network;
mod slots;

use std::collections::BTreeMap;

use rollout_operator::api::meta::labels;
use serde_json::{Value, json};

use crate::runtime::jobs::place::Place;

/// Where an agent's container finds the volume that samples go to.
const DATA: &str = "/data";

/// A container that runs the static program.
fn program(name: &str, arguments: &[&str], env: &Value) -> Value {
    let command: Vec<_> = ["/agents"].iter().chain(arguments).collect();
    json!({
        "name": name, "image": "localhost/agents:1", "command": command, "env": env,
        "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}},
    })
}

/// Agents that run the static program, with the volume of the samples, so that they can leave marks of what they did.
pub(crate) fn agents(arguments: &[&str], env: &Value, marks: &str) -> Value {
    let mut env = env.as_array().cloned().unwrap_or_default();
    env.push(json!({"name": "STARTS", "value": format!("{DATA}/{marks}")}));
    let mut agent = program("agent", arguments, &json!(env));
    agent["volumeMounts"] = json!([{"name": "marks", "mountPath": DATA}]);
    let volumes = json!([{"name": "marks", "persistentVolumeClaim": {"claimName": "samples"}}]);
    json!({"agent": {"container": {"template": {"spec": {"containers": [agent], "volumes": volumes}}}}})
}

/// Makes a directory beside the samples that everybody may write.
pub(crate) async fn directory(place: &Place, name: &str) {
    let script =
        format!("/bin/busybox mkdir -p {DATA}/{name} && /bin/busybox chmod 777 {DATA}/{name}");
    let command = ["/bin/busybox", "sh", "-c", &script];
    let pod = format!("make-{name}");
    place.run(&pod, "localhost/tiny:1", &command, 65532).await;
}

/// What the agents of a job found: the metadata of its samples.
async fn metadata(place: &Place, job: &str) -> Vec<Value> {
    let script = format!("/bin/busybox cat {DATA}/{job}/samples-*.jsonl");
    let command = ["/bin/busybox", "sh", "-c", &script];
    let pod = format!("rows-of-{job}");
    let rows = place.run(&pod, "localhost/tiny:1", &command, 65532).await;
    // A sample that broke has several rows, with the same metadata.
    let rows = rows
        .lines()
        .map(|row| serde_json::from_str::<Value>(row).unwrap());
    let samples: BTreeMap<_, _> = rows
        .map(|row| (row["index"].as_i64(), row["metadata"].clone()))
        .collect();
    samples.into_values().collect()
}

/// Selects a job's agents.
fn selector(job: &str) -> String {
    format!("{}={job},{}=agent", labels::JOB, labels::COMPONENT)
}

/// Sessions whose agent ended well: by itself, or after an answer that was cut at the job's token limit.
fn ended_well(sessions: &Value) -> i64 {
    let count = |outcome: &str| sessions[outcome].as_i64().unwrap_or(0);
    count("completed") + count("truncated")
}
