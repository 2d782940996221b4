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

fn claim(place: &Place, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": place.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// A volume that was refused for a while is tried again after half a minute or so.
const MOUNTED: std::time::Duration = std::time::Duration::from_mins(3);

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
    create(&place.client, &claim(&place, "later")).await;
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

/// An agent that outlasts the test, in a template with more in its container and its Pod.
fn agent_with(container: &Value, pod: &Value) -> Value {
    let mut generate = Place::agentic("/bin/busybox sleep 3600");
    let spec = &mut generate["agentic"]["agent"]["container"]["template"]["spec"];
    for (field, value) in container.as_object().unwrap() {
        spec["containers"][0][field] = value.clone();
    }
    for (field, value) in pod.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let few = json!({"batchSize": 1, "samplesPerPrompt": 1, "concurrency": {"sessions": 1}});
    json!({"generate": generate, "rollout": few})
}

/// A driver with a volume.
fn driver_with(volume: &Value) -> Value {
    let mut volume = volume.clone();
    volume["name"] = json!("more");
    let container =
        json!({"name": "driver", "volumeMounts": [{"name": "more", "mountPath": "/more"}]});
    let template = json!({"spec": {"volumes": [volume], "containers": [container]}});
    json!({"driver": {"template": template}})
}

/// Jobs that name something that is not there, each in another field, and what they are told. What may be read is looked up before an attempt begins.
fn named() -> Vec<(&'static str, Value, &'static str)> {
    [named_by_agents(), named_by_driver()].concat()
}

/// In what the agents' Pods are made of.
fn named_by_agents() -> Vec<(&'static str, Value, &'static str)> {
    let mounts = json!({"volumeMounts": [{"name": "more", "mountPath": "/more"}]});
    let of_agent = |volume: Value| {
        let mut volume = volume;
        volume["name"] = json!("more");
        agent_with(&mounts, &json!({"volumes": [volume]}))
    };
    let beside = |container: Value| {
        let mut container = container;
        container["name"] = json!("sandbox");
        container["image"] = json!("localhost/tiny:1");
        container["command"] = json!(["/bin/busybox", "sleep", "3600"]);
        let mut spec = agent_with(&json!({}), &json!({}));
        spec["generate"]["agentic"]["sandbox"] =
            json!({"template": {"spec": {"containers": [container]}}});
        spec
    };
    let function = json!({"agentic": {"agent": {"function": {
        "path": "agent.run", "image": "localhost/python:1", "code": {"configMap": {"name": "later"}},
    }}}});
    vec![
        (
            "env",
            agent_with(
                &json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "k"}}}]}),
                &json!({}),
            ),
            "agent.container.template.spec.containers[0].env[0].valueFrom.configMapKeyRef: there is no ConfigMap",
        ),
        (
            "env-from",
            agent_with(
                &json!({"envFrom": [{"configMapRef": {"name": "later"}}]}),
                &json!({}),
            ),
            "envFrom[0].configMapRef: there is no ConfigMap",
        ),
        (
            "agent-map",
            of_agent(json!({"configMap": {"name": "later", "items": [{"key": "k", "path": "k"}]}})),
            "volumes[0].configMap.items[0].key: there is no ConfigMap",
        ),
        (
            "agent-claim",
            of_agent(json!({"persistentVolumeClaim": {"claimName": "later"}})),
            "volumes[0].persistentVolumeClaim.claimName: there is no PersistentVolumeClaim",
        ),
        (
            "agent-secret",
            of_agent(json!({"secret": {"secretName": "later"}})),
            "secret \"later\" not found",
        ),
        (
            "agent-key",
            of_agent(
                json!({"secret": {"secretName": "present", "items": [{"key": "k", "path": "k"}]}}),
            ),
            "references non-existent secret key: k",
        ),
        (
            "function",
            json!({"generate": function}),
            "agent.function.code.configMap.name: there is no ConfigMap",
        ),
        (
            "sandbox-env",
            beside(json!({"envFrom": [{"configMapRef": {"name": "later"}}]})),
            "sandbox.template.spec.containers[0].envFrom[0].configMapRef: there is no ConfigMap",
        ),
        (
            "sandbox-secret",
            beside(json!({"envFrom": [{"secretRef": {"name": "later"}}]})),
            "secret \"later\" not found",
        ),
    ]
}

/// In what the driver's Pod is made of, plug-ins included.
fn named_by_driver() -> Vec<(&'static str, Value, &'static str)> {
    let plugins = |more: Value| {
        let mut plugins = more;
        plugins["image"] = json!("localhost/python:1");
        json!({"plugins": plugins})
    };
    vec![
        (
            "driver-map",
            driver_with(&json!({"configMap": {"name": "later"}})),
            "spec.driver.template.spec.volumes[0].configMap.name: there is no ConfigMap",
        ),
        (
            "driver-claim",
            driver_with(&json!({"persistentVolumeClaim": {"claimName": "later"}})),
            "spec.driver.template.spec.volumes[0].persistentVolumeClaim.claimName: there is no",
        ),
        (
            "driver-secret",
            driver_with(&json!({"projected": {"sources": [{"secret": {"name": "later"}}]}})),
            "secret \"later\" not found",
        ),
        (
            "plugin-code",
            plugins(json!({"code": {"configMap": {"name": "later"}}})),
            "spec.plugins.code.configMap.name: there is no ConfigMap",
        ),
        (
            "plugin-env",
            plugins(
                json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "later", "key": "k"}}}]}),
            ),
            "secret \"later\" not found",
        ),
    ]
}

/// Whether an attempt begins only once it is there: Secrets are not looked up.
fn is_looked_up(words: &str) -> bool {
    !words.contains("secret")
}

#[tokio::test]
async fn whatever_a_job_names_is_told_when_it_is_not_there_and_heals_when_it_is() {
    let place = Place::new("named").await;
    let secrets: Api<Secret> = place.all();
    let secret = |name: &str, data: Value| {
        serde_json::from_value(json!({"metadata": {"name": name}, "stringData": data})).unwrap()
    };
    let present = secret("present", json!({"other": "v"}));
    secrets
        .create(&PostParams::default(), &present)
        .await
        .unwrap();
    for (job, spec, _) in named() {
        place.job(job, &spec).await;
    }
    for (job, _, words) in named() {
        // What is looked up is told before the pool is ready; of Secrets a kubelet tells, once it has the Pods.
        place
            .comes_true(&format!("{job} is told: {words}"), MOUNTED, async || {
                condition(&place.jobs, job, "Stalled").await == "True/ReferenceNotFound"
                    && place.said(job, "Stalled").await.contains(words)
            })
            .await;
        let attempt = place.status(job).await["attempt"].as_i64();
        let expected = i64::from(!is_looked_up(words));
        assert_eq!(attempt, Some(expected), "{job}");
    }
    let mut map = config_map(
        &place,
        &json!({"k": "v", "agent.py": "async def run():\n    pass\n"}),
    );
    map["metadata"]["name"] = json!("later");
    create(&place.client, &map).await;
    create(&place.client, &claim(&place, "later")).await;
    let later = secret("later", json!({"k": "v"}));
    secrets
        .create(&PostParams::default(), &later)
        .await
        .unwrap();
    let edit = json!({"stringData": {"k": "v"}});
    secrets
        .patch("present", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    for (job, ..) in named() {
        // Volumes are tried again at growing intervals.
        place
            .comes_true(&format!("{job} begins"), MOUNTED, async || {
                let status = place.status(job).await;
                let phase = status["phase"].as_str().unwrap_or_default();
                let stalled = condition(&place.jobs, job, "Stalled").await;
                status["attempt"] == 1
                    && ["Running", "TearingDown", "Succeeded"].contains(&phase)
                    && stalled == "False/AsExpected"
            })
            .await;
    }
    place.end().await;
}

#[tokio::test]
async fn a_spec_that_is_wrong_is_told_and_runs_once_it_is_edited() {
    let place = Place::new("wrong").await;
    let mut spec = json!({"generate": Place::agentic(CALL)});
    let template = "/generate/agentic/agent/container/template/spec/containers/0";
    let command = {
        let agent = spec.pointer_mut(template).unwrap().as_object_mut().unwrap();
        agent.remove("command").unwrap()
    };
    place.job("job", &spec).await;
    stalled(&place, "job", "InvalidSpec", ".command: is required").await;
    assert_eq!(place.status("job").await["attempt"], 0);
    spec.pointer_mut(template).unwrap()["command"] = command;
    place.merge("job", json!({"spec": spec})).await;
    heals(&place, "job").await;
    place.end().await;
}

#[tokio::test]
async fn an_agent_that_no_node_takes_and_a_plugin_image_that_cannot_be_pulled() {
    let place = Place::new("no-place").await;
    let selector = json!({"nodeSelector": {"example.com/nobody": "has"}});
    place.job("agent", &agent_with(&json!({}), &selector)).await;
    let plugins = json!({"plugins": {"image": "localhost/nobody:2"}});
    place.job("plugins", &plugins).await;
    stalled(
        &place,
        "agent",
        "Unschedulable",
        "didn't match Pod's node affinity/selector",
    )
    .await;
    stalled(&place, "plugins", "ImagePullFailed", "localhost/nobody:2").await;
    // What is wrong is in the Pods of both: they are frozen, and end when they are told to.
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
