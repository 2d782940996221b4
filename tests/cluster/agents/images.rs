//! Images of agents that are not Python, and a sandbox beside the agent.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::{agents, ended_well, metadata, program, selector};
use crate::runtime::jobs::place::Place;
use crate::runtime::pools::condition;

/// Two Pods after each other in a slot, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(4);

#[tokio::test]
async fn a_static_program_is_an_agent() {
    let place = Place::new("static").await;
    let spec = json!({"generate": {"agentic": agents(&["turns", "3"], &json!([]), "")}});
    place.job("job", &spec).await;
    place
        .comes_true("the job is complete", LIMIT, async || {
            condition(&place.jobs, "job", "Complete").await == "True/TargetReached"
        })
        .await;
    let sessions = &place.status("job").await["progress"]["sessions"];
    assert_eq!(ended_well(sessions), 4, "{sessions}");
    assert_eq!(sessions["infraFailed"], 0, "{sessions}");
    let metadata = metadata(&place, "job").await;
    assert_eq!(metadata.len(), 4);
    for one in metadata {
        assert_eq!(one["turns"], 3, "{one}");
    }
    place.nothing_left("job").await;
    assert_eq!(place.of::<Pod>("job").await, ["job-driver-1"]);
    place.verify().await;
    place.end().await;
}

/// The containers of the agents' Pods, by whether they have restarted.
async fn restarts(pods: &Api<Pod>) -> Vec<(String, i32)> {
    let list = pods
        .list(&ListParams::default().labels(&selector("job")))
        .await
        .unwrap();
    let statuses = list.into_iter().filter_map(|pod| pod.status);
    statuses
        .flat_map(|status| {
            let beside = status.init_container_statuses.unwrap_or_default();
            beside
                .into_iter()
                .chain(status.container_statuses.unwrap_or_default())
        })
        .map(|status| (status.name, status.restart_count))
        .collect()
}

#[tokio::test]
async fn a_sandbox_serves_the_agent_beside_it_and_ends_with_its_session() {
    let place = Place::new("sandbox").await;
    let here = "127.0.0.1:9000";
    let env = json!([{"name": "SANDBOX_URL", "value": format!("http://{here}")}]);
    let mut sandbox = program("sandbox", &["sandbox", here], &json!([]));
    sandbox["startupProbe"] =
        json!({"exec": {"command": ["/agents", "reaches", here]}, "periodSeconds": 1});
    let mut agentic = agents(&["turns", "3"], &env, "");
    agentic["sandbox"] = json!({"template": {"spec": {"containers": [sandbox]}}});
    place
        .job("job", &json!({"generate": {"agentic": agentic}}))
        .await;
    let pods: Api<Pod> = place.all();
    let mut seen = std::collections::BTreeMap::new();
    place
        .comes_true("the job is complete", LIMIT, async || {
            seen.extend(restarts(&pods).await);
            condition(&place.jobs, "job", "Complete").await == "True/TargetReached"
        })
        .await;
    assert_eq!(seen.get("sandbox"), Some(&0), "{seen:?}");
    let sessions = &place.status("job").await["progress"]["sessions"];
    assert_eq!(ended_well(sessions), 4, "{sessions}");
    assert_eq!(sessions["infraFailed"], 0, "{sessions}");
    for one in metadata(&place, "job").await {
        // The sandbox counts: it has served nobody but this session.
        assert_eq!(one["last"], json!("2: 2 nrut"), "{one}");
    }
    place.nothing_left("job").await;
    let left: Vec<Value> = left_over(&place).await;
    assert_eq!(left, [Value::Null; 0], "{left:?}");
    assert_eq!(place.of::<Pod>("job").await, ["job-driver-1"]);
    place.verify().await;
    place.end().await;
}

/// Containers of the sandbox that the node still runs.
async fn left_over(place: &Place) -> Vec<Value> {
    let pods = place
        .all::<Pod>()
        .list(&ListParams::default())
        .await
        .unwrap();
    let pods = pods.into_iter().map(|pod| json!(pod));
    pods.filter(|pod| pod.to_string().contains("\"name\":\"sandbox\""))
        .collect()
}
