//! Definitions that are not there yet, that go and come back, and objects that an older or looser definition let in.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::tools::{file, kubectl, kubectl_can, kubectl_with, nothing_installed, object};
use crate::runtime::controller::{Controller, until};
use crate::runtime::jobs::place::{endless, engines};
use crate::runtime::pools::{pool, samples_claim};

const SCRATCH: &str = "scratch";

async fn define() {
    kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        &file("crds"),
    ])
    .await;
    for plural in ["sglangpools", "rolloutjobs"] {
        let name = format!("crd/{plural}.rollout-operator.dev");
        kubectl(&[
            "wait",
            "--for=condition=Established",
            &name,
            "--timeout=30s",
        ])
        .await;
    }
}

/// The definitions without what they say about a spec or a status.
async fn define_loosely() {
    for kind in ["sglangpools", "rolloutjobs"] {
        let text = std::fs::read_to_string(file(&format!("crds/{kind}.yaml"))).unwrap();
        let mut definition: Value = serde_yaml::from_str(&text).unwrap();
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
            json!({"type": "object", "properties": {"spec": anything, "status": anything}});
        // An autoscaler's paths have types too.
        definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
        kubectl_with(
            &["apply", "--server-side", "--force-conflicts", "-f", "-"],
            &definition.to_string(),
        )
        .await;
    }
}

async fn apply(object: &Value) {
    kubectl_with(&["apply", "-f", "-"], &object.to_string()).await;
}

fn job(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "rollout-operator.dev/v1alpha1", "kind": "RolloutJob",
        "metadata": {"name": name, "namespace": SCRATCH}, "spec": spec,
    })
}

fn good(name: &str) -> Value {
    json!({
        "poolRef": {"name": "good"},
        "dataset": {"inline": [{"prompt": "One?"}]},
        "rollout": {"batchSize": 1, "samplesPerPrompt": 2},
        "sampling": {"maxNewTokens": 16},
        "generate": {"singleTurn": {}},
        "output": {"persistentVolumeClaim": {"claimName": "samples", "path": name}},
        "driver": {"resources": {"requests": {"cpu": "1m", "memory": "32Mi"}}},
    })
}

async fn condition(kind: &str, name: &str, about: &str) -> String {
    let found = object(&["-n", SCRATCH, kind, name]).await;
    let conditions = found["status"]["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default().into_iter();
    let found = conditions.find(|condition| condition["type"] == about);
    found.map_or(String::new(), |found| {
        format!(
            "{}/{}: {}",
            found["status"].as_str().unwrap(),
            found["reason"].as_str().unwrap(),
            found["message"].as_str().unwrap()
        )
    })
}

/// What a person finds in `kubectl describe`.
async fn events(name: &str) -> String {
    let selector = format!("--field-selector=involvedObject.name={name}");
    kubectl(&["-n", SCRATCH, "get", "events", &selector]).await
}

/// Names of what was made for a job.
async fn made_for(name: &str) -> String {
    let kinds = "pods,services,configmaps,secrets,networkpolicies";
    let selector = format!("rollout-operator.dev/job={name}");
    kubectl(&["-n", SCRATCH, "get", kinds, "-l", &selector, "-o", "name"]).await
}

/// A namespace of its own. What an earlier test left there, whose controller is gone, is let go.
async fn scratch() {
    nothing_installed().await;
    if kubectl_can(&["get", "namespace", SCRATCH]).await {
        let patch = r#"{"metadata": {"finalizers": null}}"#;
        for pod in kubectl(&["-n", SCRATCH, "get", "pods", "-o", "name"])
            .await
            .lines()
        {
            kubectl_can(&["-n", SCRATCH, "patch", pod, "--type=merge", "-p", patch]).await;
        }
        kubectl(&["delete", "namespace", SCRATCH, "--timeout=90s"]).await;
    }
    kubectl(&["create", "namespace", SCRATCH]).await;
}

async fn done(controller: Controller) {
    drop(controller);
    nothing_installed().await;
    kubectl(&["delete", "namespace", SCRATCH, "--timeout=90s"]).await;
}

#[tokio::test]
async fn a_controller_waits_for_its_definitions_and_outlives_their_loss() {
    scratch().await;
    let controller = Controller::start(SCRATCH, &[]).await;
    let missing = "definition sglangpools.rollout-operator.dev: ";
    until("what is missing is named", &controller, async || {
        controller.page("/readyz").await.contains(missing)
    })
    .await;
    assert_eq!(controller.get("/healthz").await.as_deref(), Some("ok\n"));
    assert_eq!(controller.get("/readyz").await, None);
    let told = controller.log();
    assert!(told.contains("rollout-operator crds"), "{told}");

    define().await;
    let ready = async || controller.get("/readyz").await.as_deref() == Some("ready\n");
    until("it goes on", &controller, ready).await;
    let suspended = json!({"suspend": true, "engine": {"simulator": {}}});
    let is_suspended = async || {
        condition("sglangpool", "p", "Suspended")
            .await
            .starts_with("True/")
    };
    apply(&pool(SCRATCH, "p", &suspended)).await;
    until("it works", &controller, is_suspended).await;

    // They go, with every object, and come back.
    kubectl(&["delete", "-f", &file("crds"), "--timeout=60s"]).await;
    let failures = r#"rollout_operator_watch_errors_total{kind="SGLangPool"}"#;
    until("the loss is seen", &controller, async || {
        controller.figure(failures).await > 0.0
    })
    .await;
    define().await;
    apply(&pool(SCRATCH, "p", &suspended)).await;
    until("it works again", &controller, is_suspended).await;
    until("nothing is missing", &controller, ready).await;
    done(controller).await;
}

/// What a definition of any fields lets in and the program cannot read.
async fn apply_unreadable() {
    apply(&pool(
        SCRATCH,
        "text",
        &json!({"replicas": "many", "engine": {"simulator": {}}}),
    ))
    .await;
    apply(&pool(SCRATCH, "empty", &json!({}))).await;
    apply(&job(
        "number",
        &json!({"poolRef": {"name": "good"}, "rollout": 7}),
    ))
    .await;
    apply(&job("empty", &json!({}))).await;
    // One that a later version ran, which had words that this one does not know.
    apply(&job("later", &good("later"))).await;
    let status = json!({"status": {"phase": "Rehearsing", "attempt": 0, "observedGeneration": -1, "teardown": {"hook": "HookSkipped"}}});
    kubectl(&[
        "-n",
        SCRATCH,
        "patch",
        "rolloutjob",
        "later",
        "--subresource=status",
        "--type=merge",
        "-p",
        &status.to_string(),
    ])
    .await;
}

#[tokio::test]
async fn objects_that_cannot_be_read_hold_up_no_others() {
    scratch().await;
    define_loosely().await;
    apply(&samples_claim(SCRATCH)).await;
    apply_unreadable().await;
    define().await;

    let controller = Controller::ready(SCRATCH, &[]).await;
    apply(&pool(SCRATCH, "good", &engines())).await;
    apply(&job("good", &good("good"))).await;
    for name in ["good", "later"] {
        until("good ones run to their end", &controller, async || {
            condition("rolloutjob", name, "Complete")
                .await
                .starts_with("True/TargetReached")
        })
        .await;
    }
    // What has a wrong type cannot be applied to, not even its status.
    for name in ["text", "number"] {
        until("people are told", &controller, async || {
            let told = events(name).await;
            told.contains("it cannot be read, and is left as it is")
        })
        .await;
    }
    // Edited to a good one it is like any other.
    apply(&job("number", &good("number"))).await;
    until("it heals", &controller, async || {
        condition("rolloutjob", "number", "Complete")
            .await
            .starts_with("True/TargetReached")
    })
    .await;
    let mut endless_job = good("torn");
    for (field, value) in endless().as_object().unwrap() {
        endless_job[field] = value.clone();
    }
    apply(&job("torn", &endless_job)).await;
    until("it samples", &controller, async || {
        let sampling = condition("rolloutjob", "torn", "Sampling").await;
        sampling.starts_with("True/")
    })
    .await;
    // A later version let a word in that this one does not know.
    define_loosely().await;
    let torn = r#"{"spec": {"cleanup": "Archive"}}"#;
    // The API server takes up a definition in its own time.
    until("it is let in", &controller, async || {
        let object = ["-n", SCRATCH, "patch", "rolloutjob", "torn"];
        let patch = ["--type=merge", "-p", torn];
        kubectl_can(&[&object[..], &patch[..]].concat()).await
    })
    .await;
    define().await;
    until("people are told", &controller, async || {
        events("torn").await.contains("it cannot be read")
    })
    .await;
    assert_ne!(made_for("torn").await, "", "what runs of it goes on");
    // What cannot be read can be deleted.
    let all = [
        "-n",
        SCRATCH,
        "delete",
        "rolloutjobs,sglangpools",
        "--all",
        "--wait=false",
    ];
    kubectl(&all).await;
    let deadline = Instant::now() + Duration::from_mins(1);
    for kind in ["rolloutjobs", "sglangpools"] {
        while object(&["-n", SCRATCH, kind]).await["items"] != json!([]) {
            assert!(Instant::now() < deadline, "{kind} are left");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    until("nothing is left of what ran", &controller, async || {
        made_for("torn").await.is_empty()
    })
    .await;
    assert!(kubectl_can(&["get", "namespace", SCRATCH]).await);
    done(controller).await;
}
