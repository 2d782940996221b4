//! From a session's assignment to the agent's first line, in Pods that are warm: the router's own record of the moment, and the agent's first statement.
//!
//! All sessions of a round end at one moment of the clock, so that the next ones are all assigned at once. The first round starts Pods and is not counted.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, LogParams};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::controller::Controller;
use crate::manifests::{job, named, pool};
use crate::plane;
use crate::spread::Spread;
use crate::writes::{ends, modest, place, small};

const NAMESPACE: &str = "assignment";
const AT_ONCE: usize = 32;
const ROUNDS: usize = 20;
/// Where the cluster's volumes are.
const VOLUMES: &str = "/tmp/hostpath_pv";

/// The first line takes the time; the last waits for the others of its round.
const AGENT: &str = r#"
import asyncio, time
from miles.utils.http_utils import post

async def run(base_url, prompt):
    first_line = time.time_ns()
    await post(f"{base_url}/v1/chat/completions", {"model": "any", "messages": prompt})
    await asyncio.sleep(3 - time.time() % 3)
    return {"first_line": first_line, "session": base_url.rsplit("/", 1)[-1]}
"#;

pub(crate) async fn run() {
    let client = plane::client().await;
    let controller = Controller::leading().await;
    let mut fast = pool();
    fast["spec"]["engine"]["simulator"]["timeScale"] = json!(50);
    place(&client, NAMESPACE, &fast).await;
    let code = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code", "namespace": NAMESPACE}, "data": {"agent.py": AGENT},
    });
    plane::create(&client, &code).await;
    one(&client, "one-pod", AT_ONCE).await;
    one(&client, "pods", 1).await;
    controller.end(Signal::SIGTERM).await;
}

async fn one(client: &Client, name: &str, sessions_of_a_pod: usize) {
    let template = json!({"spec": {"containers": [{"name": "agent", "resources": small()}]}});
    let mut job = modest(named(job(), NAMESPACE, name));
    job["spec"]["generate"] = json!({"agentic": {
        "sessionsPerPod": 0, "concurrentSessionsPerPod": sessions_of_a_pod,
        "agent": {"function": {
            "path": "agent.run", "image": "localhost/python:1", "code": {"configMap": {"name": "code"}}, "template": template,
        }},
    }});
    job["spec"]["rollout"] = json!({
        "batchSize": AT_ONCE * (ROUNDS + 1) / 4, "samplesPerPrompt": 4, "concurrency": {"sessions": AT_ONCE},
    });
    job["spec"]["dataset"]["shuffle"] = json!(false);
    job["spec"]["dataset"]["epochs"] = json!(100);
    job["spec"]["reward"] = json!({"type": "None"});
    job["spec"]["output"]["persistentVolumeClaim"]["path"] = json!(name);
    let router = &mut job["spec"]["driver"]["template"]["spec"]["initContainers"][0];
    router["env"] = json!([{"name": "ROLLOUT_LOG", "value": "info,rollout_router::handlers::claim=debug"}, {"name": "ROLLOUT_LOG_FORMAT", "value": "json"}]);
    let started = Instant::now();
    plane::create(client, &job).await;
    ends(client, NAMESPACE, name).await;
    let took = started.elapsed();
    let assigned = assigned(client, &format!("{name}-driver-1")).await;
    let mut waits: Vec<(i128, f64)> = first_lines(name)
        .into_iter()
        .filter_map(|(session, first_line)| {
            let (_, at) = assigned
                .iter()
                .find(|(short, _)| session.starts_with(short.as_str()))?;
            let wait = first_line - at;
            Some((
                *at,
                Duration::from_nanos(u64::try_from(wait).unwrap_or(0)).as_secs_f64() * 1000.0,
            ))
        })
        .collect();
    waits.sort_by_key(|(at, _)| *at);
    let mut spread = Spread::default();
    for (_, wait) in waits.iter().skip(AT_ONCE) {
        spread.add(*wait);
    }
    let [p50, p90, p99, most] = [50, 90, 99, 100].map(|percent| spread.percentile(percent));
    println!(
        "{AT_ONCE} sessions at once, {sessions_of_a_pod} to a Pod, {} measured in {:.0} s: from assignment to the agent's first line \
         p50 {p50:.1} ms, p90 {p90:.1} ms, p99 {p99:.1} ms, max {most:.1} ms",
        waits.len().saturating_sub(AT_ONCE),
        took.as_secs_f64(),
    );
}

/// When the router gave each session away, by the first digits of its id.
async fn assigned(client: &Client, driver: &str) -> HashMap<String, i128> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = LogParams {
        container: Some("router".to_owned()),
        ..LogParams::default()
    };
    let log = pods.logs(driver, &params).await.unwrap();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["fields"]["message"] == "assigned")
        .map(|line| {
            let at: Timestamp = line["timestamp"].as_str().unwrap().parse().unwrap();
            let session = line["fields"]["session"].as_str().unwrap();
            let digits = session.trim_end_matches(|end: char| !end.is_ascii_hexdigit());
            (digits.to_owned(), at.as_nanosecond())
        })
        .collect()
}

/// Sessions and the moments of their first lines, from the samples' metadata.
fn first_lines(job: &str) -> HashMap<String, i128> {
    let mut found = HashMap::new();
    for volume in std::fs::read_dir(Path::new(VOLUMES)).unwrap() {
        let Ok(files) = std::fs::read_dir(volume.unwrap().path().join(job)) else {
            continue;
        };
        for file in files {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if !name.starts_with("samples-") || path.extension().is_none_or(|end| end != "jsonl") {
                continue;
            }
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let sample: Value = serde_json::from_str(line).unwrap();
                let metadata = &sample["metadata"];
                if let (Some(session), Some(at)) = (
                    metadata["session"].as_str(),
                    metadata["first_line"].as_i64(),
                ) {
                    found.insert(session.to_owned(), i128::from(at));
                }
            }
        }
    }
    found
}
