//! The operator is upgraded and uninstalled while jobs are in flight. Agents wait for a file, so that they are in flight as long as the test wants.

use std::time::Duration;

use rollout_operator::api::meta::labels;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use super::tools::{
    NAMESPACE, RELEASE, helm, helm_install, kubectl, kubectl_can, kubectl_with, nothing_installed,
    object,
};
use crate::runtime::jobs::place::{CALL, engines};
use crate::runtime::pools::{pool, samples_claim};

/// Where pools and jobs are.
const TEAM: &str = "team-upgraded";
/// The operator's image under another name: what a next release would be.
pub(crate) const NEXT: &str = "localhost/rollout-operator:next";
/// Longest wait for what happens by itself.
const PATIENCE: Duration = Duration::from_mins(2);

/// A job of four sessions, two at once, whose agents wait for the file `/data/<gate>`.
fn job(name: &str, gate: &str) -> Value {
    let small = json!({"requests": {"cpu": "1m", "memory": "32Mi"}});
    let script = format!("until [ -e /data/{gate} ]; do /bin/busybox sleep 1; done\n{CALL}");
    let agent = json!({
        "name": "agent", "image": "localhost/tiny:1", "command": ["/bin/busybox", "sh", "-c", script],
        "volumeMounts": [{"name": "gates", "mountPath": "/data"}],
    });
    let volumes = json!([{"name": "gates", "persistentVolumeClaim": {"claimName": "samples"}}]);
    json!({
        "apiVersion": "rollout-operator.dev/v1alpha1", "kind": "RolloutJob",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "poolRef": {"name": "pool"},
            "dataset": {"inline": [{"prompt": [{"role": "user", "content": "One?"}]}, {"prompt": [{"role": "user", "content": "Two?"}]}]},
            "rollout": {"batchSize": 2, "samplesPerPrompt": 2, "concurrency": {"sessions": 2}},
            "sampling": {"maxNewTokens": 32},
            "generate": {"agentic": {"agent": {"container": {"template": {"spec": {"containers": [agent], "volumes": volumes}}}}}},
            "teardown": {"drainSeconds": 2, "abortHookSeconds": 2},
            "output": {"persistentVolumeClaim": {"claimName": "samples", "path": name}},
            "driver": {
                "resources": small,
                "template": {"spec": {"initContainers": [{"name": "router", "resources": small}]}},
            },
        },
    })
}

async fn apply(object: &Value) {
    kubectl_with(&["apply", "-f", "-"], &object.to_string()).await;
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Runs a command beside the samples to its end.
async fn run(name: &str, image: &str, command: &[&str]) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "it", "image": image, "command": command,
                "volumeMounts": [{"name": "samples", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "samples", "persistentVolumeClaim": {"claimName": "samples"}}],
        },
    });
    apply(&pod).await;
    let done = "--for=jsonpath={.status.phase}=Succeeded";
    let name = format!("pod/{name}");
    kubectl(&["-n", TEAM, "wait", done, &name, "--timeout=120s"]).await;
}

async fn open(gate: &str) {
    let command = ["/bin/busybox", "touch", &format!("/data/{gate}")];
    run(&format!("open-{gate}"), "localhost/tiny:1", &command).await;
}

async fn verify(job: &str) {
    let folder = format!("/data/{job}");
    let command = ["/usr/bin/rollout-operator", "samples", "verify", &folder];
    run(
        &format!("verify-{job}"),
        "localhost/rollout-operator:dev",
        &command,
    )
    .await;
}

async fn pods(label: &str, value: &str) -> Vec<Value> {
    let selector = format!("{label}={value}");
    let list = object(&["pods", "-n", TEAM, "-l", &selector]).await;
    list["items"].as_array().unwrap().clone()
}

/// A Pod as it must stay: who it is, and how often its containers started again.
fn identity(pod: &Value) -> (Value, Vec<Value>) {
    let status = &pod["status"];
    let containers = ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .flat_map(|field| status[field].as_array().into_iter().flatten());
    (
        pod["metadata"]["uid"].clone(),
        containers
            .map(|container| container["restartCount"].clone())
            .collect(),
    )
}

async fn engines_of_pool() -> Vec<(Value, Vec<Value>)> {
    let pods = pods(labels::POOL, "pool").await;
    let engines = pods
        .iter()
        .filter(|pod| pod["metadata"]["labels"][labels::COMPONENT] == "engine");
    engines.map(identity).collect()
}

async fn driver(job: &str) -> Value {
    object(&["-n", TEAM, "pod", &format!("{job}-driver-1")]).await
}

async fn agents(job: &str) -> Vec<Value> {
    let pods = pods(labels::JOB, job).await;
    let agents = pods
        .into_iter()
        .filter(|pod| pod["metadata"]["labels"][labels::COMPONENT] == "agent");
    agents.collect()
}

async fn agents_run(job: &str) {
    until(&format!("two agents of {job} run"), async || {
        let agents = agents(job).await;
        let running = agents
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running");
        running.count() == 2
    })
    .await;
}

async fn status(job: &str) -> Value {
    object(&["-n", TEAM, "rolloutjob", job]).await["status"].clone()
}

/// Complete, in its first attempt, and nothing was run again.
async fn completes(job: &str) {
    let complete = "--for=condition=Complete";
    let name = format!("rolloutjob/{job}");
    kubectl(&["-n", TEAM, "wait", complete, &name, "--timeout=150s"]).await;
    let status = status(job).await;
    assert_eq!(status["attempt"], 1, "{status}");
    assert_eq!(status["recentFailures"], Value::Null, "{status}");
    assert_eq!(status["output"]["samples"], 4, "{status}");
    verify(job).await;
}

async fn team() {
    // An earlier test may have left it.
    kubectl(&["delete", "namespace", TEAM, "--ignore-not-found"]).await;
    kubectl(&["create", "namespace", TEAM]).await;
    apply(&samples_claim(TEAM)).await;
    apply(&pool(TEAM, "pool", &engines())).await;
    let ready = "--for=condition=Ready";
    kubectl(&[
        "-n",
        TEAM,
        "wait",
        ready,
        "sglangpool/pool",
        "--timeout=120s",
    ])
    .await;
}

/// Ends the team's jobs and pools while an operator is there to do it, then what is left.
async fn end_team() {
    kubectl(&[
        "-n",
        TEAM,
        "delete",
        "rolloutjobs,sglangpools",
        "--all",
        "--timeout=60s",
    ])
    .await;
    nothing_installed().await;
    kubectl(&["delete", "namespace", TEAM, "--timeout=90s"]).await;
}

async fn uninstall() {
    helm(&[
        "uninstall",
        RELEASE,
        "--namespace",
        NAMESPACE,
        "--wait",
        "--timeout=60s",
    ])
    .await;
    let deployment = ["-n", NAMESPACE, "get", "deployment", RELEASE];
    assert!(!kubectl_can(&deployment).await);
}

/// Gives the image its other name.
pub(crate) async fn tag_next() {
    let tag = Command::new("ctr")
        .args([
            "-a",
            "/run/containerd/containerd.sock",
            "-n",
            "k8s.io",
            "images",
            "tag",
            "--force",
        ])
        .args(["localhost/rollout-operator:dev", NEXT])
        .output();
    let tag = tag.await.unwrap();
    assert!(tag.status.success(), "{tag:?}");
}

#[tokio::test]
async fn a_release_is_upgraded_below_running_jobs() {
    nothing_installed().await;
    tag_next().await;
    helm_install(&[]).await;
    team().await;
    apply(&job("waits", "upgraded")).await;
    agents_run("waits").await;
    let (engines, before) = (engines_of_pool().await, driver("waits").await);
    assert_eq!(engines.len(), 1);

    helm_install(&[
        "image.tag=next",
        "replicas=2",
        "podAnnotations.upgraded=yes",
    ])
    .await;
    until("the next operator leads alone", async || {
        let label = "app.kubernetes.io/name=rollout-operator";
        let pods = object(&["pods", "-n", NAMESPACE, "-l", label]).await;
        let pods = pods["items"].as_array().unwrap();
        pods.len() == 2
            && pods
                .iter()
                .all(|pod| pod["spec"]["containers"][0]["image"] == NEXT)
    })
    .await;
    assert_eq!(agents("waits").await.len(), 2);
    open("upgraded").await;
    completes("waits").await;
    // The second two sessions had Pods of the next operator, and the driver and the router of the one before.
    let writers = driver("waits").await;
    assert_eq!(identity(&writers), identity(&before));
    assert_eq!(engines_of_pool().await, engines);
    // What is made from now on is the next one's, beside engines of the one before.
    apply(&job("after", "upgraded")).await;
    completes("after").await;
    let images = driver("after").await["spec"].to_string();
    assert_eq!(images.matches(NEXT).count(), 2, "{images}");
    assert!(!before["spec"].to_string().contains(NEXT));
    assert_eq!(engines_of_pool().await, engines);
    end_team().await;
}

#[tokio::test]
async fn jobs_that_run_while_the_operator_is_away_wait_for_it_and_finished_ones_do_not() {
    nothing_installed().await;
    helm_install(&[]).await;
    team().await;
    apply(&job("done", "first")).await;
    open("first").await;
    completes("done").await;
    for name in ["waits", "deleted"] {
        apply(&job(name, "back")).await;
        agents_run(name).await;
    }
    let (engines, before) = (engines_of_pool().await, driver("waits").await);
    let waiting = agents("waits").await;

    uninstall().await;
    assert_eq!(engines_of_pool().await, engines);
    // Nothing holds what is finished.
    kubectl(&["-n", TEAM, "delete", "rolloutjob", "done", "--timeout=30s"]).await;
    // What runs is held until an operator has ended its sessions.
    kubectl(&[
        "-n",
        TEAM,
        "delete",
        "rolloutjob",
        "deleted",
        "--wait=false",
    ])
    .await;
    open("back").await;
    until("sessions end without an operator", async || {
        let agents = agents("waits").await;
        let ended = agents
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Succeeded");
        ended.count() == 2
    })
    .await;
    let names = |pods: &[Value]| -> Vec<Value> {
        let names = pods.iter().map(|pod| pod["metadata"]["name"].clone());
        names.collect()
    };
    assert_eq!(names(&agents("waits").await), names(&waiting));
    assert_eq!(identity(&driver("waits").await), identity(&before));
    let held = object(&["-n", TEAM, "rolloutjob", "deleted"]).await;
    assert_ne!(held["metadata"]["deletionTimestamp"], Value::Null);

    helm_install(&[]).await;
    completes("waits").await;
    assert_eq!(identity(&driver("waits").await), identity(&before));
    until("the deleted job is gone with its pods", async || {
        let job = ["-n", TEAM, "get", "rolloutjob", "deleted"];
        !kubectl_can(&job).await && pods(labels::JOB, "deleted").await.is_empty()
    })
    .await;
    assert_eq!(engines_of_pool().await, engines);
    end_team().await;
}
