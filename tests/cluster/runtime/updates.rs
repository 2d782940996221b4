//! Pools that change while their engines work: scale, update, suspend, another operator.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use nix::sys::signal::Signal;
use rollout_operator::api::meta::annotations;
use serde_json::{Value, json};

use super::controller::Controller;
use super::field::Field;

fn engines(replicas: i32) -> Value {
    json!({"replicas": replicas, "engine": {"contextLength": 4096, "simulator": {"timeScale": 4}}})
}

/// The change of an engine's spec.
fn other_seed() -> Value {
    json!({"spec": {"engine": {"simulator": {"seed": 7}}}})
}

async fn scale(field: &Field, pool: &str) -> Scale {
    field.pools.get_scale(pool).await.unwrap()
}

#[tokio::test]
async fn a_pool_is_scaled_by_its_sub_resource() {
    let field = Field::new("scale").await;
    field.pool("pool", &engines(1)).await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    let first = field.engine_uids("pool").await;
    let set = async |replicas: i32| {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let params = PatchParams::default();
        field
            .pools
            .patch_scale("pool", &params, &patch)
            .await
            .unwrap();
    };
    set(3).await;
    field
        .until("three engines are ready", async || {
            scale(&field, "pool").await.status.unwrap().replicas == 3
                && field.pool_status("pool").await["display"]["engines"] == "3/3"
        })
        .await;
    let three = field.engine_uids("pool").await;
    assert!(three.contains(&first[0]), "the first engine was replaced");
    // An autoscaler finds the Pods by it.
    let selector = scale(&field, "pool")
        .await
        .status
        .unwrap()
        .selector
        .unwrap();
    let params = kube::api::ListParams::default().labels(&selector);
    let found = field
        .all::<k8s_openapi::api::core::v1::Pod>()
        .list(&params)
        .await
        .unwrap();
    assert_eq!(found.items.len(), 3, "{selector}");
    set(0).await;
    field
        .until("no engine is left", async || {
            field.engines("pool").await.is_empty()
                && scale(&field, "pool").await.status.unwrap().replicas == 0
        })
        .await;
}

#[tokio::test]
async fn an_update_under_load_loses_no_sample() {
    let field = Field::new("update").await;
    field.pool("pool", &engines(2)).await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    let before = field.engine_uids("pool").await;
    // A sample takes about a second, and 16 are under way.
    let long = json!({
        "rollout": {"batchSize": 100, "samplesPerPrompt": 4, "concurrency": {"sessions": 16}},
        "sampling": {"maxNewTokens": 800, "minNewTokens": 700},
    });
    field.job("job", "pool", &long).await;
    field
        .job_becomes("job", "Sampling", "True/AsExpected")
        .await;
    field.edit("pool", other_seed()).await;
    let mut fewest = i64::MAX;
    let mut most = 0;
    field
        .until("every engine is a new one", async || {
            let status = field.pool_status("pool").await;
            fewest = fewest.min(status["readyReplicas"].as_i64().unwrap());
            most = most.max(field.engines("pool").await.len());
            let now = field.engine_uids("pool").await;
            now.len() == 2
                && now.iter().all(|uid| !before.contains(uid))
                && status["currentRevision"] == status["updateRevision"]
        })
        .await;
    assert!(fewest >= 2, "{fewest} engines were ready");
    assert!(most <= 3, "there were {most} engines");
    assert!(
        field.job_status("job").await["completionTime"].is_null(),
        "the job was over before the update"
    );
    field
        .job_becomes("job", "Complete", "True/TargetReached")
        .await;
    let status = field.job_status("job").await;
    assert_eq!(status["output"]["samples"], 400, "{status}");
    assert_eq!(status["attempt"], 1, "{status}");
    // Leaving engines end what they have.
    assert_eq!(status["recentFailures"], Value::Null, "{status}");
}

#[tokio::test]
async fn a_paused_update_waits_and_a_suspended_pool_comes_back() {
    let field = Field::new("paused").await;
    let mut spec = engines(1);
    spec["update"] = json!({"paused": true});
    field.pool("pool", &spec).await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    let before = field.engine_uids("pool").await;
    let revision = field.pool_status("pool").await["updateRevision"].clone();
    field.edit("pool", other_seed()).await;
    field
        .until("the new revision is told", async || {
            let status = field.pool_status("pool").await;
            status["updateRevision"] != revision && status["currentRevision"] == revision
        })
        .await;
    field
        .pool_becomes("pool", "Reconciling", "True/Progressing")
        .await;
    assert_eq!(field.engine_uids("pool").await, before);
    field
        .edit("pool", json!({"spec": {"update": {"paused": false}}}))
        .await;
    field
        .until("the engine is a new one", async || {
            let now = field.engine_uids("pool").await;
            now.len() == 1 && now != before
        })
        .await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;

    field.edit("pool", json!({"spec": {"suspend": true}})).await;
    field
        .pool_becomes("pool", "Suspended", "True/Suspended")
        .await;
    assert_eq!(field.engine_uids("pool").await, [""; 0]);
    field
        .edit("pool", json!({"spec": {"suspend": false}}))
        .await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    assert_eq!(field.engine_uids("pool").await.len(), 1);
}

#[tokio::test]
async fn another_operator_restarts_no_engine_until_the_spec_changes() {
    let mut field = Field::new("upgrade").await;
    let mut spec = engines(1);
    spec["router"] = json!({});
    field.pool("pool", &spec).await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    let engine = field.engine_uids("pool").await;
    field.controller.signal(Signal::SIGTERM);
    field.controller.end().await;

    const NEXT: &str = "localhost/rollout-operator:next";
    field.controller = Controller::of_image(&field.namespace, NEXT).await;
    let deployments = field.all::<Deployment>();
    let images = async |name: &str| {
        let deployment = deployments.get(name).await.unwrap();
        let template = json!(deployment.spec.unwrap().template.spec.unwrap());
        template.to_string().matches(NEXT).count()
    };
    field
        .until("the router is the new operator's", async || {
            images("pool-router").await > 0
        })
        .await;
    assert_eq!(images("pool-engine").await, 0);
    assert_eq!(field.engine_uids("pool").await, engine);
    let kept = deployments.get("pool-engine").await.unwrap();
    let revision = kept.annotations()[annotations::REVISION].clone();
    let generation = kept.metadata.generation;
    // It makes what the user changes: with its own image, in both containers.
    field.edit("pool", other_seed()).await;
    field
        .until("the engine is the new operator's", async || {
            images("pool-engine").await == 2
        })
        .await;
    let changed = deployments.get("pool-engine").await.unwrap();
    assert_ne!(changed.annotations()[annotations::REVISION], revision);
    assert_ne!(changed.metadata.generation, generation);
}
