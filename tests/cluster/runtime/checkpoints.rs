//! Weights that were loaded into engines from disk outlive the engines' containers and Pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::field::{Field, small_engines};

/// For one request.
const ANSWER: Duration = Duration::from_secs(30);

fn client() -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy().timeout(ANSWER);
    builder.build().unwrap()
}

fn url(engine: &Pod, port: u16, path: &str) -> String {
    let address = engine.status.as_ref().unwrap().pod_ip.as_deref().unwrap();
    format!("http://{address}:{port}{path}")
}

async fn get(engine: &Pod, port: u16, path: &str) -> Option<Value> {
    let answer = client().get(url(engine, port, path)).send().await.ok()?;
    answer.error_for_status().ok()?.json().await.ok()
}

/// As a trainer does it: at each engine.
async fn update(engine: &Pod, path: &str, version: &str) {
    let body = json!({"model_path": path, "weight_version": version});
    let at = url(engine, 30000, "/update_weights_from_disk");
    let answer = client().post(at).json(&body).send().await.unwrap();
    answer.error_for_status().unwrap();
}

async fn weights(engine: &Pod) -> (Value, Value) {
    let info = get(engine, 30000, "/model_info").await.unwrap();
    (info["model_path"].clone(), info["weight_version"].clone())
}

fn is_ready(engine: &Pod) -> bool {
    let conditions = engine.status.as_ref().unwrap().conditions.as_ref();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn restarts(engine: &Pod) -> i32 {
    let containers = engine.status.as_ref().unwrap().container_statuses.as_ref();
    containers.map_or(0, |containers| containers[0].restart_count)
}

#[tokio::test]
async fn an_engine_takes_no_work_before_it_has_the_checkpoint_of_its_pool() {
    let field = Field::new("checkpoints").await;
    field.pool("pool", &small_engines(2, &json!({}))).await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    let loaded = (json!("org/step-12"), json!("12"));
    for engine in field.engines("pool").await {
        assert_ne!(weights(&engine).await, loaded);
        update(&engine, "org/step-12", "12").await;
        field
            .until("the sidecar has taken note", async || {
                let state = get(&engine, 30001, "/state").await.unwrap_or_default();
                state["checkpoint"]["path"] == loaded.0
            })
            .await;
    }

    // Its process dies; the Pod stays.
    let [dies, leaves] = <[Pod; 2]>::try_from(field.engines("pool").await).unwrap();
    let deadly = url(&dies, 30000, "/release_memory_occupation");
    let _ = client().post(deadly).json(&json!({})).send().await;
    let pods = field.all::<Pod>();
    let mut again = dies.clone();
    field
        .until("it takes work again", async || {
            again = pods.get(&dies.name_any()).await.unwrap();
            restarts(&again) == 1 && is_ready(&again)
        })
        .await;
    assert_eq!(weights(&again).await, loaded);

    // Another Pod in its place has nothing to remember, and asks the one that is there.
    let name = leaves.name_any();
    pods.delete(&name, &DeleteParams::default().grace_period(1))
        .await
        .unwrap();
    let mut new = leaves.clone();
    field
        .until("another one takes work", async || {
            let engines = field.engines("pool").await;
            let found = engines
                .into_iter()
                .find(|pod| pod.uid() != again.uid() && pod.uid() != leaves.uid());
            found.is_some_and(|found| {
                new = found;
                is_ready(&new)
            })
        })
        .await;
    assert_eq!(weights(&new).await, loaded);
    assert_eq!(restarts(&new), 0);
    field
        .until("the pool has one version", async || {
            field.pool_status("pool").await["display"]["weights"] == "12"
        })
        .await;
    field.end().await;
}
