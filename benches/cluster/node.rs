//! A node whose kubelet is played here: Pods that are bound to it are ready at once, drivers end at once with the last word of a job that reached its
//! target, and what is deleted is gone at once. Scheduler and controllers are the real ones.

use std::time::Duration;

use axum::routing::get;
use axum::{Json, Router};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rollout_operator::api::meta::labels;
use rollout_operator::resources::pool::SIDECAR_PORT;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::plane;

const NAME: &str = "played";
/// The real one, which gets no Pods meanwhile.
const REAL: &str = "n1";
/// The control plane's, where [`sidecar`] answers for all engines.
const ADDRESS: &str = "10.90.0.11";
/// Below the 20 s after which the control plane gives a node up.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Pods that are served at once.
const AT_ONCE: usize = 16;

/// What runs on the real node, which has no work meanwhile: its firewall is written anew for every policy and Service in the cluster.
const RESTING: [&str; 3] = ["kubelet", "kube-proxy", "kube-router"];

/// The node, until it is dropped.
pub(crate) struct Played {
    _tasks: JoinSet<()>,
    resting: Vec<Pid>,
}

impl Drop for Played {
    fn drop(&mut self) {
        for process in &self.resting {
            let _ = kill(*process, Signal::SIGCONT);
        }
    }
}

/// Processes of the cluster that have these names.
fn named(names: &[&str]) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().map(Result::unwrap);
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = ids.filter(|id| {
        let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        names.contains(&name.trim())
    });
    found.map(Pid::from_raw).collect()
}

impl Played {
    pub(crate) async fn new(client: &Client) -> Self {
        plane::cordon(client, REAL, true).await;
        let resting = named(&RESTING);
        for process in &resting {
            kill(*process, Signal::SIGSTOP).unwrap();
        }
        let nodes: Api<Node> = Api::all(client.clone());
        let room = json!({"cpu": "10000", "memory": "100000Gi", "pods": "10000"});
        let node = json!({
            "metadata": {"name": NAME, "labels": {"kubernetes.io/hostname": NAME, "kubernetes.io/os": "linux"}},
            "status": {"capacity": room, "allocatable": room, "conditions": [ready()]},
        });
        let node = serde_json::from_value(node).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(beat(nodes));
        tasks.spawn(serve(client.clone()));
        tasks.spawn(sidecar());
        Self {
            _tasks: tasks,
            resting,
        }
    }
}

fn ready() -> Value {
    let now = now();
    json!({"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": now, "lastTransitionTime": now})
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

async fn beat(nodes: Api<Node>) {
    let mut ticks = tokio::time::interval(HEARTBEAT);
    loop {
        ticks.tick().await;
        let patch = json!({"status": {"conditions": [ready()]}});
        let patch = Patch::Strategic(&patch);
        if let Err(error) = nodes
            .patch_status(NAME, &PatchParams::default(), &patch)
            .await
        {
            eprintln!("a heartbeat of the node was lost: {error}");
        }
    }
}

async fn serve(client: Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={NAME}"));
    watcher(pods, config)
        .for_each_concurrent(AT_ONCE, |event| {
            let client = client.clone();
            async move {
                if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event {
                    play(&client, &pod).await;
                }
            }
        })
        .await;
}

/// The sidecars of all engines.
async fn sidecar() {
    let state = json!({
        "version": "default", "required": null, "paused": false, "draining": false, "server_version": "0.5.23", "error": null,
    });
    let routes = Router::new().route("/state", get(async move || Json(state)));
    let listener = TcpListener::bind((ADDRESS, SIDECAR_PORT)).await.unwrap();
    axum::serve(listener, routes).await.unwrap();
}

/// What a kubelet would come to do about a Pod.
async fn play(client: &Client, pod: &Pod) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
    let name = pod.name_any();
    if pod.metadata.deletion_timestamp.is_some() {
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        // It may be gone by now.
        let _ = pods.delete(&name, &now).await;
        return;
    }
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if !matches!(phase, None | Some("Pending")) {
        return;
    }
    let status = match pod.labels().get(labels::COMPONENT).map(String::as_str) {
        Some("driver") => ended(),
        _ => running(),
    };
    let patch = json!({"status": status});
    let answer = pods
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    if let Err(error) = answer {
        eprintln!("the status of {name} was not taken: {error}");
    }
}

fn running() -> Value {
    let conditions: Vec<_> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now()}))
        .into();
    json!({"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}], "startTime": now(), "conditions": conditions})
}

fn ended() -> Value {
    let word = json!({
        "version": 1,
        "result": {"reason": "TargetReached", "message": "8 groups of 8 were kept", "success": true},
        "progress": {
            "step": 0, "groups": {"target": 8, "kept": 8, "filtered": 3, "inFlight": 0},
            "sessions": {"completed": 44}, "tokens": {"generated": 12_000}, "rewardMean": "0.5",
        },
        "output": {"url": "pvc://quickstart-samples/", "groups": 8, "samples": 32},
    });
    let state = json!({"terminated": {
        "exitCode": 0, "reason": "Completed", "startedAt": now(), "finishedAt": now(), "message": word.to_string(),
    }});
    let driver = json!({
        "name": "driver", "image": "localhost/rollout-operator:dev", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    });
    json!({"phase": "Succeeded", "startTime": now(), "containerStatuses": [driver]})
}
