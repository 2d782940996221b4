//! The only node is lost with everything on it, and comes back. Runs alone.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt};
use nix::sys::signal::Signal;
use rollout_operator::api::meta;
use serde_json::{Value, json};

use super::processes;
use crate::agents::{agents, directory};
use crate::api::objects;
use crate::runtime::jobs::place::{Place, endless};
use crate::runtime::pools::condition;

/// How long the control plane takes to give a silent node up (20 s), and the Pods of one that is gone (about a minute).
const CONTROL_PLANE: Duration = Duration::from_mins(3);
/// How long jobs may take after that.
const LIMIT: Duration = Duration::from_mins(5);

fn spec(generate: &Value) -> Value {
    let rows: Vec<_> = (0..8)
        .map(|row| json!({"prompt": [{"role": "user", "content": format!("{row}?")}]}))
        .collect();
    json!({
        "dataset": {"inline": rows},
        "rollout": {"batchSize": 8, "samplesPerPrompt": 2, "concurrency": {"sessions": 2, "requestsPerEngine": 1}},
        "sampling": {"maxNewTokens": 400, "minNewTokens": 400},
        // A node that is lost is nobody's failure.
        "backoffLimit": 0,
        "generate": generate,
    })
}

fn kept(status: &Value) -> i64 {
    status["progress"]["groups"]["kept"].as_i64().unwrap_or(0)
}

async fn only_node(client: &Client) -> Node {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut nodes = nodes.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(nodes.len(), 1);
    nodes.swap_remove(0)
}

fn readiness(node: &Node) -> &str {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    ready.map_or("", |ready| &ready.status)
}

fn kubelet(signal: Signal) {
    let kubelets = processes::programs("kubelet");
    assert_eq!(kubelets.len(), 1, "{kubelets:?}");
    nix::sys::signal::kill(kubelets[0], signal).unwrap();
}

#[tokio::test]
async fn a_node_that_is_lost_costs_an_attempt_and_nothing_else() {
    let place = Place::new("node").await;
    directory(&place, "marks").await;
    place.becomes_ready("pool").await;
    let agentic = json!({"agentic": agents(&["turns", "2"], &json!([]), "marks")});
    place.job("agents", &spec(&agentic)).await;
    place.job("single", &spec(&json!({"singleTurn": {}}))).await;
    for job in ["agents", "single"] {
        place
            .comes_true(&format!("{job} is under way"), LIMIT, async || {
                kept(&place.status(job).await) > 0
            })
            .await;
    }
    // Sampling that outlasts the silence.
    place.job("endless", &endless()).await;
    place
        .becomes("endless", "Sampling", "True/AsExpected")
        .await;

    kubelet(Signal::SIGSTOP);
    let nodes: Api<Node> = Api::all(place.client.clone());
    place
        .comes_true("the node is given up", CONTROL_PLANE, async || {
            readiness(&only_node(&place.client).await) == "Unknown"
        })
        .await;
    // Its engine counts as not ready and gets no requests; what runs there is left alone, since the node may speak again.
    let pools = objects(&place.client, &place.namespace, meta::POOL_KIND);
    place
        .comes_true("the pool has lost its engine", CONTROL_PLANE, async || {
            !condition(&pools, "pool", "Ready").await.starts_with("True")
        })
        .await;
    let status = place.status("endless").await;
    assert_eq!(status["attempt"], 1, "{status}");
    let driver = place.all::<Pod>().get("endless-driver-1").await.unwrap();
    assert!(driver.metadata.deletion_timestamp.is_none());

    let node = only_node(&place.client).await;
    nodes
        .delete(&node.name_any(), &DeleteParams::default())
        .await
        .unwrap();
    // Nothing begins before an engine takes work, and the pool says why none does.
    place
        .comes_true("the pool has no node", CONTROL_PLANE, async || {
            condition(&pools, "pool", "Stalled").await == "True/Unschedulable"
        })
        .await;
    place
        .comes_true("the job waits for its pool", CONTROL_PLANE, async || {
            place.status("endless").await["phase"] == "Pending"
                && condition(&place.jobs, "endless", "PoolReady").await == "False/Starting"
                && place.of::<Pod>("endless").await.is_empty()
        })
        .await;

    // The kubelet makes its node again when it starts.
    kubelet(Signal::SIGKILL);
    place
        .comes_true("the node is back", CONTROL_PLANE, async || {
            let all = nodes.list(&ListParams::default()).await.unwrap().items;
            all.len() == 1 && readiness(&all[0]) == "True"
        })
        .await;
    // It may have come to its end while nobody could tell: the next attempt says the same.
    place
        .comes_true("the next attempt begins", LIMIT, async || {
            place.status("endless").await["attempt"] == 2
        })
        .await;
    for job in ["agents", "single"] {
        place
            .comes_true(&format!("{job} is complete"), LIMIT, async || {
                let failed = condition(&place.jobs, job, "Failed").await;
                let status = place.status(job).await;
                assert!(!failed.starts_with("True"), "{job}: {failed}: {status}");
                condition(&place.jobs, job, "Complete").await == "True/TargetReached"
            })
            .await;
        let status = place.status(job).await;
        assert_eq!(kept(&status), 8, "{job}: {status}");
        place.nothing_left(job).await;
        place.verify_in(&format!("verify-{job}"), job).await;
        place.only_drivers_left(job).await;
    }
    let status = place.status("endless").await;
    let failures = status["recentFailures"].as_array().unwrap().iter();
    let mut lost = failures.filter(|failure| failure["reason"] == "driver_disrupted");
    assert_eq!(lost.next().unwrap()["count"], 1, "{status}");
    place.end().await;
}
