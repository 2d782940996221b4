//! What a job misses is told in a condition, and heals by itself.

use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::place::{CALL, Place, engines};
use crate::runtime::controller::until;
use crate::runtime::pools::{condition, create, pool};

/// Waits until a job is stalled for this reason, with a message that has these words.
async fn stalled(place: &Place, job: &str, reason: &str, words: &str) {
    place
        .becomes(job, "Stalled", &format!("True/{reason}"))
        .await;
    let said = place.said(job, "Stalled").await;
    assert!(said.contains(words), "{said}");
}

async fn heals(place: &Place, job: &str) {
    place.becomes(job, "Complete", "True/TargetReached").await;
    assert_eq!(place.status(job).await["attempt"], 1);
}

fn config_map(place: &Place, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "prompts", "namespace": place.namespace},
        "data": data,
    })
}

#[tokio::test]
async fn a_pool_that_is_missing() {
    let place = Place::new("no-pool").await;
    place
        .job("job", &json!({"poolRef": {"name": "later"}}))
        .await;
    stalled(&place, "job", "ReferenceNotFound", "spec.poolRef").await;
    create(&place.client, &pool(&place.namespace, "later", &engines())).await;
    heals(&place, "job").await;
    place.end().await;
}

#[tokio::test]
async fn a_config_map_that_is_missing_and_then_its_key() {
    let place = Place::new("no-rows").await;
    let dataset = json!({"configMap": {"name": "prompts", "key": "train.jsonl"}});
    place.job("job", &json!({"dataset": dataset})).await;
    stalled(
        &place,
        "job",
        "ReferenceNotFound",
        "spec.dataset.configMap: there is no ConfigMap",
    )
    .await;
    create(&place.client, &config_map(&place, &json!({"other": ""}))).await;
    until("the key is told", &place.controller, async || {
        place
            .said("job", "Stalled")
            .await
            .contains("has no key train.jsonl")
    })
    .await;
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = place.all();
    let rows = "{\"prompt\": \"One?\"}\n{\"prompt\": \"Two?\"}\n";
    maps.patch(
        "prompts",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"train.jsonl": rows}})),
    )
    .await
    .unwrap();
    heals(&place, "job").await;
    place.end().await;
}

#[tokio::test]
async fn a_volume_that_is_missing() {
    let place = Place::new("no-volume").await;
    place
        .job(
            "job",
            &json!({"output": {"persistentVolumeClaim": {"claimName": "later"}}}),
        )
        .await;
    stalled(
        &place,
        "job",
        "ReferenceNotFound",
        "spec.output.persistentVolumeClaim.claimName: there is no PersistentVolumeClaim",
    )
    .await;
    create(
        &place.client,
        &json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "later", "namespace": place.namespace},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }),
    )
    .await;
    // Its directory is root's, so that nothing can be written: it is no longer missing, and that is all.
    until("the attempt begins", &place.controller, async || {
        place.status("job").await["attempt"] == 1
    })
    .await;
    place.end().await;
}

#[tokio::test]
async fn a_runtime_class_that_is_missing() {
    let place = Place::new("no-class").await;
    let name = format!("class-of-{}", place.namespace);
    let mut generate = Place::agentic(CALL);
    generate["agentic"]["agent"]["container"]["template"]["spec"]["runtimeClassName"] = json!(name);
    place.job("job", &json!({"generate": generate})).await;
    stalled(&place, "job", "ReferenceNotFound", &name).await;
    assert_eq!(place.status("job").await["attempt"], 0);
    let classes: Api<k8s_openapi::api::node::v1::RuntimeClass> = Api::all(place.client.clone());
    let class = json!({"metadata": {"name": name}, "handler": "runc"});
    classes
        .create(
            &PostParams::default(),
            &serde_json::from_value(class).unwrap(),
        )
        .await
        .unwrap();
    until("the attempt begins", &place.controller, async || {
        place.status("job").await["attempt"] == 1
    })
    .await;
    place.becomes("job", "Stalled", "False/AsExpected").await;
    classes
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    place.end().await;
}

#[tokio::test]
async fn a_secret_that_an_agent_misses() {
    let place = Place::new("no-secret").await;
    let mut generate = Place::agentic(CALL);
    generate["agentic"]["agent"]["container"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "later", "key": "k"}}}]);
    place.job("job", &json!({"generate": generate})).await;
    stalled(&place, "job", "ReferenceNotFound", "later").await;
    let secrets: Api<Secret> = place.all();
    let secret =
        serde_json::from_value(json!({"metadata": {"name": "later"}, "stringData": {"k": "v"}}))
            .unwrap();
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    heals(&place, "job").await;
    place.end().await;
}

#[tokio::test]
async fn a_quota_that_is_used_up() {
    let place = Place::new("job-quota").await;
    until("the engine runs", &place.controller, async || {
        let pods = place.all::<Pod>().list(&ListParams::default()).await;
        pods.unwrap().items.len() > 1
    })
    .await;
    let quotas: Api<ResourceQuota> = place.all();
    let quota = |pods: &str| -> ResourceQuota {
        serde_json::from_value(
            json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": pods}}}),
        )
        .unwrap()
    };
    quotas
        .create(&PostParams::default(), &quota("1"))
        .await
        .unwrap();
    until("the quota counts", &place.controller, async || {
        let quota = quotas.get("small").await.unwrap();
        quota.status.and_then(|status| status.used).is_some()
    })
    .await;
    place.job("job", &json!({})).await;
    stalled(&place, "job", "QuotaExceeded", "exceeded quota: small").await;
    quotas
        .delete("small", &DeleteParams::default())
        .await
        .unwrap();
    heals(&place, "job").await;
    place.end().await;
}

#[tokio::test]
async fn a_quota_that_lets_some_agents_run_slows_a_job_and_stops_nothing() {
    let place = Place::new("few-agents").await;
    place.becomes_ready("pool").await;
    let quotas: Api<ResourceQuota> = place.all();
    // The engine, the driver, one agent.
    let quota = serde_json::from_value(
        json!({"metadata": {"name": "small"}, "spec": {"hard": {"pods": "3"}}}),
    )
    .unwrap();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    until("the quota counts", &place.controller, async || {
        let quota = quotas.get("small").await.unwrap();
        quota.status.and_then(|status| status.used).is_some()
    })
    .await;
    place
        .job(
            "job",
            &json!({"generate": Place::agentic(CALL), "rollout": {"batchSize": 2, "samplesPerPrompt": 2, "concurrency": {"sessions": 3}}}),
        )
        .await;
    let mut told = false;
    until("all sessions run", &place.controller, async || {
        let agents = condition(&place.jobs, "job", "AgentsReady").await;
        told |= agents == "False/QuotaExceeded";
        condition(&place.jobs, "job", "Complete").await == "True/TargetReached"
    })
    .await;
    assert!(told);
    place.end().await;
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_and_a_node_that_nobody_has() {
    let place = Place::new("no-image").await;
    let agent = json!({"name": "agent", "image": "localhost/nobody:1", "command": ["/x"], "imagePullPolicy": "IfNotPresent"});
    let container = json!({"template": {"spec": {"containers": [agent]}}});
    place
        .job(
            "image",
            &json!({"generate": {"agentic": {"agent": {"container": container}}}}),
        )
        .await;
    let label = format!("example.com/{}", place.namespace);
    let selector = json!({"driver": {"template": {"spec": {"nodeSelector": {&label: "yes"}}}}});
    place.job("node", &selector).await;
    stalled(&place, "image", "ImagePullFailed", "localhost/nobody:1").await;
    stalled(
        &place,
        "node",
        "Unschedulable",
        "didn't match Pod's node affinity/selector",
    )
    .await;
    let nodes: Api<Node> = Api::all(place.client.clone());
    let node = nodes.list(&ListParams::default()).await.unwrap().items[0]
        .metadata
        .name
        .clone()
        .unwrap();
    let mark = |value: Value| json!({"metadata": {"labels": {&label: value}}});
    nodes
        .patch(
            &node,
            &PatchParams::default(),
            &Patch::Merge(mark(json!("yes"))),
        )
        .await
        .unwrap();
    heals(&place, "node").await;
    nodes
        .patch(
            &node,
            &PatchParams::default(),
            &Patch::Merge(mark(Value::Null)),
        )
        .await
        .unwrap();
    place.end().await;
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_told_and_neither_written_nor_deleted() {
    let place = Place::new("taken-secret").await;
    let secrets: Api<Secret> = place.all();
    let theirs = serde_json::from_value(
        json!({"metadata": {"name": "job-rollout"}, "stringData": {"password": "theirs"}}),
    )
    .unwrap();
    secrets
        .create(&PostParams::default(), &theirs)
        .await
        .unwrap();
    let before = secrets.get("job-rollout").await.unwrap();
    place.job("job", &json!({})).await;
    stalled(
        &place,
        "job",
        "ApplyRefused",
        "job-rollout exists already and belongs to somebody else",
    )
    .await;
    assert_eq!(secrets.get("job-rollout").await.unwrap(), before);
    place
        .jobs
        .delete("job", &DeleteParams::default())
        .await
        .unwrap();
    place.is_gone("job").await;
    assert_eq!(secrets.get("job-rollout").await.unwrap(), before);
    // Its owner lets it go: the next job has the name.
    secrets
        .delete("job-rollout", &DeleteParams::default())
        .await
        .unwrap();
    place.job("job", &json!({})).await;
    heals(&place, "job").await;
    place.end().await;
}
