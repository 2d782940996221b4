//! Pools that change while their engines work: scale, update, suspend, another operator.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use nix::sys::signal::Signal;
use rollout_operator::api::meta::annotations;
use serde_json::{Value, json};

use super::controller::Controller;
use super::field::{Field, small_engines};

fn engines(replicas: i32) -> Value {
    small_engines(replicas, &json!({"timeScale": 4}))
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
    field.end().await;
}

#[tokio::test]
async fn an_update_under_load_loses_no_sample() {
    let field = Field::new("update").await;
    // A sample takes two seconds, and there is no end of them.
    let slow = json!({"timeScale": 1, "decodeTokensPerSecond": 300});
    field.pool("pool", &small_engines(2, &slow)).await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    let before = field.engine_uids("pool").await;
    let endless = json!({
        "rollout": {"batchSize": 10000, "samplesPerPrompt": 2, "concurrency": {"requestsPerEngine": 8}},
        "sampling": {"maxNewTokens": 600, "minNewTokens": 600},
    });
    field.job("job", "pool", &endless).await;
    let kept = async || field.job_status("job").await["progress"]["groups"]["kept"].as_i64();
    field
        .until("samples come", async || kept().await > Some(0))
        .await;
    field.edit("pool", &other_seed()).await;
    let mut fewest = i64::MAX;
    let mut most = 0;
    // One after the other, each once routers have had the time to learn of the one before.
    for (replaced, what) in [(1, "one engine is a new one"), (2, "every engine is")] {
        field
            .until(what, async || {
                let status = field.pool_status("pool").await;
                fewest = fewest.min(status["readyReplicas"].as_i64().unwrap());
                most = most.max(field.engines("pool").await.len());
                let now = field.engine_uids("pool").await;
                let old = now.iter().filter(|uid| before.contains(uid)).count();
                let settled = status["currentRevision"] == status["updateRevision"];
                now.len() >= 2 && old + replaced == 2 && (replaced < 2 || settled)
            })
            .await;
    }
    assert!(fewest >= 2, "{fewest} engines were ready");
    assert!(most <= 3, "there were {most} engines");
    let then = kept().await;
    field
        .until("samples still come", async || {
            kept().await > then.map(|kept| kept + 16)
        })
        .await;
    let status = field.job_status("job").await;
    assert_eq!(status["attempt"], 1, "{status}");
    // Engines that leave end what they have: nothing failed, and nothing was generated twice.
    assert_eq!(status["recentFailures"], Value::Null, "{status}");
    let progress = &status["progress"];
    assert_eq!(progress["tokens"]["discarded"], 0, "{status}");
    for what in ["failed", "lost", "recycled"] {
        assert_eq!(progress["groups"][what], 0, "{status}");
    }
    field.end().await;
}

#[tokio::test]
async fn a_job_goes_around_an_engine_that_somebody_paused() {
    let field = Field::new("gate").await;
    let mut spec = engines(2);
    spec["networkPolicy"] = json!({"enabled": false});
    field.pool("pool", &spec).await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    let paused = field.pool_status("pool").await["engines"][0]["url"].clone();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let pause = client.post(format!("{}/pause_generation", paused.as_str().unwrap()));
    let pause = pause.json(&json!({"mode": "in_place"})).send();
    pause.await.unwrap().error_for_status().unwrap();
    // What is sent there waits until the request's time is over, which is longer than this test's.
    field.job("job", "pool", &json!({})).await;
    field
        .job_becomes("job", "Complete", "True/TargetReached")
        .await;
    assert_eq!(field.job_status("job").await["output"]["samples"], 4);
    field.end().await;
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
    field.edit("pool", &other_seed()).await;
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
        .edit("pool", &json!({"spec": {"update": {"paused": false}}}))
        .await;
    field
        .until("the engine is a new one", async || {
            let now = field.engine_uids("pool").await;
            now.len() == 1 && now != before
        })
        .await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;

    field
        .edit("pool", &json!({"spec": {"suspend": true}}))
        .await;
    field
        .pool_becomes("pool", "Suspended", "True/Suspended")
        .await;
    assert_eq!(field.engine_uids("pool").await, [""; 0]);
    field
        .edit("pool", &json!({"spec": {"suspend": false}}))
        .await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    assert_eq!(field.engine_uids("pool").await.len(), 1);
    field.end().await;
}

#[tokio::test]
async fn another_operator_restarts_no_engine_until_the_spec_changes() {
    const NEXT: &str = "localhost/rollout-operator:next";
    let mut field = Field::new("upgrade").await;
    let mut spec = engines(1);
    spec["router"] = json!({});
    field.pool("pool", &spec).await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    let engine = field.engine_uids("pool").await;
    field.controller.signal(Signal::SIGTERM);
    field.controller.end().await;

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
    field.edit("pool", &other_seed()).await;
    field
        .until("the engine is the new operator's", async || {
            images("pool-engine").await == 2
        })
        .await;
    let changed = deployments.get("pool-engine").await.unwrap();
    assert_ne!(changed.annotations()[annotations::REVISION], revision);
    assert_ne!(changed.metadata.generation, generation);
    field.end().await;
}

/// A pool of one engine whose Pod has this too.
fn with_pod(spec: &Value) -> Value {
    let mut pool = engines(1);
    let pod = pool["engine"]["template"]["spec"].as_object_mut().unwrap();
    for (field, value) in spec.as_object().unwrap() {
        pod.insert(field.clone(), value.clone());
    }
    pool
}

#[tokio::test]
async fn an_engine_that_cannot_start_is_told_and_heals_when_the_spec_is_edited() {
    let field = Field::new("starts").await;
    let nowhere = with_pod(&json!({"nodeSelector": {"example.com/no": "where"}}));
    field.pool("nowhere", &nowhere).await;
    let mut nobody = engines(1);
    nobody["engine"]["template"]["spec"]["containers"][0]["image"] = json!("localhost/nobody:1");
    field.pool("nobody", &nobody).await;
    field
        .pool_becomes("nowhere", "Stalled", "True/Unschedulable")
        .await;
    field
        .pool_becomes("nobody", "Stalled", "True/ImagePullFailed")
        .await;
    assert_eq!(
        field.said("nobody", "Stalled").await,
        "the image localhost/nobody:1 of the container engine cannot be pulled"
    );
    for pool in ["nowhere", "nobody"] {
        field
            .pool_becomes(pool, "Available", "False/Starting")
            .await;
        field.edit(pool, &json!({"spec": engines(1)})).await;
    }
    // A merge keeps what it does not name.
    let everywhere = json!({"spec": {"engine": {"template": {"spec": {"nodeSelector": null}}}}});
    field.edit("nowhere", &everywhere).await;
    for pool in ["nowhere", "nobody"] {
        field.pool_becomes(pool, "Ready", "True/AsExpected").await;
        field
            .pool_becomes(pool, "Stalled", "False/AsExpected")
            .await;
    }
    field.end().await;
}

#[tokio::test]
async fn what_others_add_to_engines_stays_and_what_they_change_of_ours_does_not() {
    let field = Field::new("injected").await;
    field.pool("pool", &engines(1)).await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    let deployments = field.all::<Deployment>();
    let strategic = async |patch: Value| {
        let params = PatchParams::default();
        let patch = Patch::Strategic(patch);
        deployments
            .patch("pool-engine", &params, &patch)
            .await
            .unwrap()
    };
    let sidecar = json!({
        "name": "injected", "image": "localhost/tiny:1",
        "command": ["/bin/busybox", "sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"],
    });
    strategic(json!({
        "metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "x"}},
        "spec": {"template": {"spec": {"containers": [sidecar]}}},
    }))
    .await;
    let runs = async |seed: Option<i32>| {
        let pods = field.engines("pool").await;
        let is_it = pods.len() == 1
            && pods[0].spec.as_ref().unwrap().containers.len() == 2
            && pods[0].metadata.deletion_timestamp.is_none();
        let revision = field.pool_status("pool").await;
        let settled = revision["currentRevision"] == revision["updateRevision"];
        is_it && (seed.is_none() || settled)
    };
    field
        .until("the engine runs with its sidecar", async || {
            runs(None).await
        })
        .await;
    field.pool_becomes("pool", "Ready", "True/AsExpected").await;
    // Ours is repaired, theirs stays.
    strategic(json!({"spec": {"template": {"spec": {"containers": [
        {"name": "engine", "livenessProbe": {"periodSeconds": 1}},
    ]}}}}))
    .await;
    field
        .until("our probe is as it was", async || {
            let deployment = json!(deployments.get("pool-engine").await.unwrap().spec.unwrap());
            let containers = deployment["template"]["spec"]["containers"].clone();
            let containers = containers.as_array().unwrap().clone();
            let engine = containers.iter().find(|one| one["name"] == "engine");
            containers.len() == 2 && engine.unwrap()["livenessProbe"]["periodSeconds"] == 30
        })
        .await;
    // And so it does through an update of the spec.
    field.edit("pool", &other_seed()).await;
    field
        .until("the new engine has the sidecar too", async || {
            runs(Some(7)).await
        })
        .await;
    let deployment = deployments.get("pool-engine").await.unwrap();
    assert_eq!(
        deployment.annotations()["argocd.argoproj.io/tracking-id"],
        "x"
    );
    field.end().await;
}
