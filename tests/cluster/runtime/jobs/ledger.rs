//! The driver's Pod and the volume of its node are gone in the middle of a step.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use super::place::{Place, engines};
use crate::runtime::controller::until;
use crate::runtime::pools::{create, pool};

/// Groups of the step.
const GROUPS: i64 = 30;

/// A step that takes a while.
fn long() -> Value {
    let rows: Vec<_> = (0..GROUPS)
        .map(|row| json!({"prompt": [{"role": "user", "content": format!("{row}?")}]}))
        .collect();
    json!({
        "dataset": {"inline": rows},
        "rollout": {"batchSize": GROUPS, "samplesPerPrompt": 2, "concurrency": {"requestsPerEngine": 4}},
        "sampling": {"maxNewTokens": 256},
        "poolRef": {"name": "slow"},
    })
}

async fn kept(place: &Place) -> i64 {
    let status = place.status("job").await;
    status["progress"]["groups"]["kept"].as_i64().unwrap_or(0)
}

async fn slow_pool(place: &Place) {
    let mut slow = engines();
    slow["engine"]["simulator"] = json!({"decodeTokensPerSecond": 80});
    create(&place.client, &pool(&place.namespace, "slow", &slow)).await;
}

/// Takes the driver's Pod away after a third of the step; answers how many groups the output had by then.
async fn lose_the_driver(place: &Place) -> i64 {
    until("a third is kept", &place.controller, async || {
        kept(place).await >= GROUPS / 3
    })
    .await;
    let script =
        "/bin/busybox ls /data/job/.rollout/parts/0 | /bin/busybox grep -c '^kept-.*jsonl$'";
    let command = ["/bin/busybox", "sh", "-c", script];
    let words = place
        .run("count", "localhost/tiny:1", &command, 65532)
        .await;
    let parts = words.trim().parse().unwrap();
    let pods: Api<Pod> = place.all();
    let now = DeleteParams::default().grace_period(0);
    pods.delete("job-driver-1", &now).await.unwrap();
    parts
}

/// What the next attempt begins with, and how the job ends.
async fn goes_on(place: &Place, parts: i64) {
    let mut first = None;
    until("the next attempt counts", &place.controller, async || {
        let pods: Api<Pod> = place.all();
        let driver = pods.get_opt("job-driver-2").await.unwrap();
        let Some(address) = driver.and_then(|pod| pod.status?.pod_ip) else {
            return false;
        };
        let Ok(answer) = reqwest::get(format!("http://{address}:8090/status")).await else {
            return false;
        };
        let status: Value = answer.json().await.unwrap_or_default();
        first = status["progress"]["groups"]["kept"].as_i64();
        first.is_some_and(|kept| kept > 0)
    })
    .await;
    assert!(parts > 0);
    assert!(first >= Some(parts), "{first:?} of {parts} parts");
    place.becomes("job", "Complete", "True/TargetReached").await;
    let status = place.status("job").await;
    assert_eq!(status["attempt"], 2, "{status}");
    assert_eq!(status["progress"]["groups"]["kept"], GROUPS, "{status}");
    assert_eq!(
        status["recentFailures"][0]["reason"], "driver_disrupted",
        "{status}"
    );
    place.verify().await;
}

#[tokio::test]
async fn a_driver_that_is_lost_with_its_nodes_volume_costs_nothing_that_was_kept() {
    let place = Place::new("lost-driver").await;
    slow_pool(&place).await;
    place.job("job", &long()).await;
    let parts = lose_the_driver(&place).await;
    goes_on(&place, parts).await;
    place.end().await;
}

/// A volume of the node that everybody may write: the cluster's own are root's.
async fn volume(place: &Place) {
    let directory = format!("/var/lib/ledgers/{}", place.namespace);
    let volume = json!({
        "metadata": {"name": place.namespace},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "",
            "claimRef": {"namespace": place.namespace, "name": "job-ledger"},
            "hostPath": {"path": directory, "type": "DirectoryOrCreate"},
        },
    });
    let volumes: Api<PersistentVolume> = Api::all(place.client.clone());
    volumes
        .create(
            &PostParams::default(),
            &serde_json::from_value(volume).unwrap(),
        )
        .await
        .unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "open", "namespace": place.namespace},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "it", "image": "localhost/tiny:1", "command": ["/bin/busybox", "chmod", "777", "/ledger"],
                "volumeMounts": [{"name": "ledger", "mountPath": "/ledger"}],
            }],
            "volumes": [{"name": "ledger", "hostPath": {"path": directory, "type": "DirectoryOrCreate"}}],
        },
    });
    create(&place.client, &pod).await;
    let pods: Api<Pod> = place.all();
    until("the volume is open", &place.controller, async || {
        let pod = pods.get("open").await.unwrap();
        pod.status.and_then(|status| status.phase).as_deref() == Some("Succeeded")
    })
    .await;
}

#[tokio::test]
async fn a_ledger_of_its_own_is_made_once_and_found_by_the_next_attempt() {
    let place = Place::new("ledger").await;
    volume(&place).await;
    let claim = json!({
        "metadata": {"labels": {"team": "rl"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}},
    });
    let mut spec = long();
    spec["driver"] = json!({"ledger": {"volumeClaimTemplate": claim}});
    slow_pool(&place).await;
    place.job("job", &spec).await;
    let claims: Api<PersistentVolumeClaim> = place.all();
    let parts = lose_the_driver(&place).await;
    let first = claims.get("job-ledger").await.unwrap();
    assert_eq!(first.labels()["team"], "rl");
    until("the next attempt is there", &place.controller, async || {
        place
            .of::<Pod>("job")
            .await
            .contains(&"job-driver-2".to_owned())
    })
    .await;
    assert_eq!(claims.get("job-ledger").await.unwrap().uid(), first.uid());
    goes_on(&place, parts).await;
    // A Pod that has ended still has its volumes: the claim goes with it.
    until("the claim is to go", &place.controller, async || {
        let claim = claims.get_opt("job-ledger").await.unwrap();
        claim.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some())
    })
    .await;
    place
        .jobs
        .delete("job", &DeleteParams::default())
        .await
        .unwrap();
    place.is_gone("job").await;
    place.end().await;
}

#[tokio::test]
async fn a_job_with_a_ledger_of_its_own_runs_again() {
    let place = Place::new("ledger-rerun").await;
    volume(&place).await;
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}});
    let driver = json!({"ledger": {"volumeClaimTemplate": claim}});
    place.job("job", &json!({"driver": driver})).await;
    place.becomes("job", "Complete", "True/TargetReached").await;
    place
        .merge("job", json!({"spec": {"rerunId": "two"}}))
        .await;
    // The claim of the first run stays until the Pod that has it is gone, and a claim is made anew: with a volume of its own.
    until(
        "the second driver is there",
        &place.controller,
        async || {
            place
                .of::<Pod>("job")
                .await
                .contains(&"job-driver-2".to_owned())
        },
    )
    .await;
    place.end().await;
}
