//! A settled cluster: the operator writes nothing but its Lease, which the API server's own audit log says.
//!
//! Settled are pools of simulated and of external engines, what cannot work, a job that ended, and one that runs and has nothing new to say.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use rollout_operator::api::meta;
use rollout_operator::controllers::runtime::calls::Identity;
use serde_json::{Value, json};

use super::controller::{Controller, until};
use super::field::{Field, small_engines};
use super::jobs::place::Place;
use super::pools::{condition, create, pool, samples_claim};
use crate::api::{client, namespace, objects};

/// How long nothing must happen.
const QUIET: Duration = Duration::from_mins(1);

/// Writes of the operator in a namespace, but for leases: verb, code and URL.
fn writes(namespace: &str) -> Vec<String> {
    told(namespace, |resource| resource != "leases")
}

/// Renewals of its lease.
fn renewals(namespace: &str) -> usize {
    told(namespace, |resource| resource == "leases").len()
}

fn told(namespace: &str, of: impl Fn(&str) -> bool) -> Vec<String> {
    let kubeconfig = PathBuf::from(std::env::var_os("KUBECONFIG").unwrap());
    let log = kubeconfig.parent().unwrap().join("log/audit.log");
    let text = std::fs::read_to_string(&log).unwrap();
    let entries = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries
        .filter(|entry| {
            let agent = entry["userAgent"].as_str().unwrap_or_default();
            let resource = entry["objectRef"]["resource"].as_str();
            agent.starts_with("rollout-operator/")
                && entry["objectRef"]["namespace"] == namespace
                && of(resource.unwrap_or_default())
        })
        .map(|entry| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!(
                "{} {} {}",
                text(&entry["verb"]),
                entry["responseStatus"]["code"],
                text(&entry["requestURI"])
            )
        })
        .collect()
}

/// A pool whose engine runs, one that has the same engine as an external one, a job that ends, and one whose agent does nothing.
async fn work(field: &Field) {
    let mut inner = small_engines(1, &json!({"timeScale": 4}));
    inner["networkPolicy"] = json!({"enabled": false});
    field.pool("inner", &inner).await;
    field
        .pool_becomes("inner", "Ready", "True/AsExpected")
        .await;
    let outer = json!({"external": {"service": {"name": "inner-engines", "port": 30000}}});
    field.pool("outer", &outer).await;
    field
        .pool_becomes("outer", "Ready", "True/AsExpected")
        .await;
    field.job("finished", "outer", &json!({})).await;
    field
        .job_becomes("finished", "Complete", "True/TargetReached")
        .await;
    let idle = json!({
        "dataset": {"inline": [{"prompt": [{"role": "user", "content": "One?"}]}]},
        "generate": Place::agentic("/bin/busybox sleep 3600"),
        "rollout": {"batchSize": 1, "samplesPerPrompt": 1, "concurrency": {"sessions": 1}},
        "output": {"persistentVolumeClaim": {"claimName": "samples", "path": "idle"}},
    });
    field.job("idle", "inner", &idle).await;
    field
        .until("the agent has its session", async || {
            let status = field.job_status("idle").await;
            status["progress"]["sessions"]["active"] == 1
                && status["conditions"].to_string().contains("Sampling")
        })
        .await;
    let pods = field.all::<Pod>();
    field
        .until("the agent runs", async || {
            let pod = pods.get_opt("idle-agent-0-1").await.unwrap();
            let status = pod.and_then(|pod| pod.status);
            status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
        })
        .await;
}

#[tokio::test]
async fn a_settled_cluster_sees_no_write_also_after_a_restart_and_one_after_drift() {
    let client = client().await;
    let namespace = namespace(&client, "quiet").await;
    let election = ["--leader-elect", "--lease-namespace", &namespace];
    let api = objects(&client, &namespace, meta::POOL_KIND);
    create(&client, &samples_claim(&namespace)).await;
    let mut field = Field {
        controller: Controller::ready(&namespace, &election).await,
        pools: api.clone(),
        jobs: objects(&client, &namespace, meta::JOB_KIND),
        client: client.clone(),
        namespace: namespace.clone(),
    };
    work(&field).await;
    for number in 0..4 {
        let spec = json!({"replicas": 0, "engine": {"simulator": {}}});
        create(&client, &pool(&namespace, &format!("good-{number}"), &spec)).await;
        let spec =
            json!({"replicas": 1, "engine": {"simulator": {}}, "idle": {"afterSeconds": 60}});
        create(&client, &pool(&namespace, &format!("bad-{number}"), &spec)).await;
    }
    for number in 0..4 {
        let (good, bad) = (format!("good-{number}"), format!("bad-{number}"));
        until("the good pools are ready", &field.controller, async || {
            condition(&api, &good, "Ready").await == "True/AsExpected"
        })
        .await;
        until("the bad pools are stalled", &field.controller, async || {
            condition(&api, &bad, "Stalled").await == "True/NotSupported"
        })
        .await;
    }
    // Nothing is left in its queue, nor progress that waits for its turn: that is written every five seconds at most.
    until("it is settled", &field.controller, async || {
        let before = writes(&namespace).len();
        tokio::time::sleep(Duration::from_secs(6)).await;
        writes(&namespace).len() == before
    })
    .await;
    let made = writes(&namespace);
    assert!(made.len() > 8, "the audit log shows too little: {made:#?}");
    // There is no condition for nothing: a while of it is watched.
    tokio::time::sleep(QUIET).await;
    assert_eq!(writes(&namespace)[made.len()..], [""; 0]);
    assert!(renewals(&namespace) > 10, "the audit log has no lease");

    field.controller.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(field.controller.end().await.success());
    field.controller = Controller::ready(&namespace, &election).await;
    until(
        "it has looked at everything",
        &field.controller,
        async || {
            let name = r#"rollout_operator_reconciles_total{kind="SGLangPool",result="ok"}"#;
            let jobs = r#"rollout_operator_reconciles_total{kind="RolloutJob",result="ok"}"#;
            field.controller.figure(name).await >= 10.0
                && field.controller.figure(jobs).await >= 2.0
        },
    )
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(writes(&namespace)[made.len()..], [""; 0], "a restart wrote");

    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": "good-0-engines"}});
    let services = Identity::of(&service).unwrap().api(&client);
    let patch = json!({"metadata": {"labels": {"rollout-operator.dev/component": "drifted"}}});
    services
        .patch(
            "good-0-engines",
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await
        .unwrap();
    until("it is repaired", &field.controller, async || {
        let service = services.get("good-0-engines").await.unwrap();
        service.metadata.labels.unwrap()["rollout-operator.dev/component"] != "drifted"
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let repairs = writes(&namespace)[made.len()..].to_vec();
    assert_eq!(repairs.len(), 1, "{repairs:#?}");
    assert!(
        repairs[0].contains("services/good-0-engines"),
        "{repairs:#?}"
    );
}

#[tokio::test]
async fn a_restart_sends_nothing_of_a_job_that_has_its_driver() {
    let mut place = Place::new("again").await;
    place.becomes_ready("pool").await;
    let nowhere = json!({"spec": {"nodeSelector": {"node": "nowhere"}}});
    place
        .job("job", &json!({"driver": {"template": nowhere}}))
        .await;
    place.becomes("job", "Stalled", "True/Unschedulable").await;
    assert_eq!(place.of::<Pod>("job").await, ["job-driver-1"]);
    until("it is settled", &place.controller, async || {
        let before = writes(&place.namespace).len();
        tokio::time::sleep(Duration::from_secs(2)).await;
        writes(&place.namespace).len() == before
    })
    .await;
    let made = writes(&place.namespace);
    assert!(made.len() > 8, "the audit log shows too little: {made:#?}");

    place.controller.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(place.controller.end().await.success());
    place.controller = Controller::ready(&place.namespace, &[]).await;
    until("it has looked at the job", &place.controller, async || {
        let name = r#"rollout_operator_reconciles_total{kind="RolloutJob",result="ok"}"#;
        place.controller.figure(name).await >= 1.0
    })
    .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let sent = &writes(&place.namespace)[made.len()..];
    assert_eq!(sent, [""; 0], "a restart wrote");
    place.end().await;
}
