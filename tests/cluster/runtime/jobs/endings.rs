//! What happens to a job that ended, and to one that is deleted.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use super::place::{Place, endless};
use crate::runtime::controller::until;

#[tokio::test]
async fn what_a_job_leaves_goes_after_its_time() {
    let place = Place::new("ttl").await;
    for cleanup in ["Children", "Self", "None"] {
        let spec = json!({"cleanup": cleanup, "ttlSecondsAfterFinished": 1});
        place.job(&cleanup.to_lowercase(), &spec).await;
    }
    place.job("kept", &json!({})).await;
    place
        .becomes("none", "Complete", "True/TargetReached")
        .await;
    place
        .becomes("kept", "Complete", "True/TargetReached")
        .await;
    until("the job itself goes", &place.controller, async || {
        place.jobs.get_opt("self").await.unwrap().is_none()
            && place.of::<Pod>("self").await.is_empty()
    })
    .await;
    place
        .becomes("children", "Complete", "True/TargetReached")
        .await;
    until("what it made goes", &place.controller, async || {
        place.of::<Pod>("children").await.is_empty()
    })
    .await;
    assert_eq!(place.status("children").await["phase"], "Succeeded");
    // Those that were not to go had as much time.
    assert_eq!(place.of::<Pod>("none").await, ["none-driver-1"]);
    assert_eq!(place.of::<Pod>("kept").await, ["kept-driver-1"]);
    place.end().await;
}

#[tokio::test]
async fn another_rerun_id_runs_a_finished_job_again_into_a_folder_of_its_own() {
    let place = Place::new("rerun").await;
    place.job("job", &json!({})).await;
    place.becomes("job", "Complete", "True/TargetReached").await;
    // The spec is free again in the same edit.
    let edit = json!({"spec": {"rerunId": "two", "rollout": {"samplesPerPrompt": 3}}});
    place.merge("job", edit).await;
    until("it has run again", &place.controller, async || {
        let status = place.status("job").await;
        status["rerunId"] == "two" && status["phase"] == "Succeeded"
    })
    .await;
    let status = place.status("job").await;
    assert_eq!(status["attempt"], 2);
    assert_eq!(status["output"]["samples"], 6);
    place.nothing_left("job").await;
    until("the first driver is gone", &place.controller, async || {
        place.of::<Pod>("job").await == ["job-driver-2"]
    })
    .await;
    place.verify_in("first", "job").await;
    place.verify_in("second", "job/two").await;
    place.end().await;
}

#[tokio::test]
async fn an_output_of_another_job_fails_the_second_at_its_first_start() {
    let place = Place::new("taken-output").await;
    place.job("job", &json!({})).await;
    place.becomes("job", "Complete", "True/TargetReached").await;
    let samples = json!({"persistentVolumeClaim": {"claimName": "samples", "path": "job"}});
    place.job("second", &json!({"output": samples})).await;
    place
        .becomes("second", "Failed", "True/OutputUnusable")
        .await;
    let said = place.said("second", "Failed").await;
    let taken = format!("is the output of job {}/job (uid", place.namespace);
    assert!(said.contains(&taken), "{said}");
    assert!(said.contains("choose another output directory"), "{said}");
    let status = place.status("second").await;
    assert_eq!(
        (&status["attempt"], &status["phase"]),
        (&json!(1), &json!("Failed"))
    );
    let driver = place.all::<Pod>().get("second-driver-1").await.unwrap();
    let containers = driver.status.unwrap().container_statuses.unwrap();
    assert_eq!(containers[0].restart_count, 0, "{containers:?}");
    place.verify().await;
    place.end().await;
}

#[tokio::test]
async fn a_namespace_ends_with_the_jobs_that_run_in_it() {
    let place = Place::new("ends").await;
    let mut agents = endless();
    agents["generate"] = Place::agentic("/bin/busybox sleep 3600");
    agents["reward"] = json!({"type": "None"});
    agents["rollout"] =
        json!({"batchSize": 2, "samplesPerPrompt": 2, "concurrency": {"sessions": 2}});
    place.job("single", &endless()).await;
    place.job("agents", &agents).await;
    place.becomes("single", "Sampling", "True/AsExpected").await;
    until("agents run", &place.controller, async || {
        place.of::<Pod>("agents").await.len() > 1
    })
    .await;
    let namespaces: Api<Namespace> = Api::all(place.client.clone());
    namespaces
        .delete(&place.namespace, &DeleteParams::default())
        .await
        .unwrap();
    // Kubernetes looks again after half the grace period of the pods that it deleted.
    let limit = Duration::from_mins(5);
    place
        .comes_true("the namespace is gone", limit, async || {
            let namespace = namespaces.get_opt(&place.namespace).await.unwrap();
            namespace.is_none()
        })
        .await;
}

/// A job in each phase; how it gets there.
fn phases() -> Vec<(&'static str, &'static str, Value)> {
    let nowhere = json!({"driver": {"template": {"spec": {"nodeSelector": {"nobody": "has"}}}}});
    let mut failed = endless();
    failed["activeDeadlineSeconds"] = json!(1);
    let mut agents = endless();
    // Its agent outlives the fence: the drain waits for it.
    agents["generate"] = Place::agentic("trap '' TERM; while :; do /bin/busybox sleep 1; done");
    agents["reward"] = json!({"type": "None"});
    agents["rollout"] =
        json!({"batchSize": 1, "samplesPerPrompt": 1, "concurrency": {"sessions": 1}});
    let mut tearing = agents.clone();
    // Time enough for its agent to run before it, also on a busy machine: with none there is nothing to drain.
    tearing["activeDeadlineSeconds"] = json!(20);
    tearing["teardown"] = json!({"drainSeconds": 20, "abortHookSeconds": 2});
    vec![
        ("pending", "Pending", json!({"poolRef": {"name": "none"}})),
        ("starting", "Starting", nowhere),
        ("running", "Running", endless()),
        ("agents", "Running", agents),
        ("tearing", "TearingDown", tearing),
        ("succeeded", "Succeeded", json!({})),
        ("failed", "Failed", failed),
        ("suspended", "Suspended", json!({"suspend": true})),
    ]
}

async fn deleted_in_every_phase(name: &str, how: DeleteParams) {
    let place = Place::new(name).await;
    for (job, _, spec) in phases() {
        place.job(job, &spec).await;
    }
    for (job, phase, _) in phases() {
        until(
            &format!("{job} is {phase}"),
            &place.controller,
            async || place.status(job).await["phase"] == phase,
        )
        .await;
        if job == "agents" {
            until("its agent is there", &place.controller, async || {
                place.of::<Pod>(job).await.len() > 1
            })
            .await;
        }
        place.jobs.delete(job, &how).await.unwrap();
    }
    for (job, ..) in phases() {
        place.is_gone(job).await;
    }
    place.end().await;
}

#[tokio::test]
async fn a_job_is_deleted_in_every_phase() {
    deleted_in_every_phase("deleted", DeleteParams::background()).await;
}

#[tokio::test]
async fn a_job_is_deleted_in_every_phase_in_the_foreground() {
    deleted_in_every_phase("foreground", DeleteParams::foreground()).await;
}

#[tokio::test]
async fn agents_that_are_left_at_the_end_are_deleted_and_counted() {
    let place = Place::new("left").await;
    let mut spec = endless();
    spec["generate"] = Place::agentic("/bin/busybox sleep 3600");
    spec["generate"]["agentic"]["warmPods"] = json!(2);
    spec["reward"] = json!({"type": "None"});
    spec["rollout"] =
        json!({"batchSize": 1, "samplesPerPrompt": 1, "concurrency": {"sessions": 2}});
    spec["activeDeadlineSeconds"] = json!(8);
    place.job("job", &spec).await;
    until("agents are there", &place.controller, async || {
        let pods = place.of::<Pod>("job").await;
        pods.iter().filter(|pod| pod.contains("-agent-")).count() == 2
    })
    .await;
    place
        .becomes("job", "Failed", "True/DeadlineExceeded")
        .await;
    let status = place.status("job").await;
    assert_eq!(status["teardown"]["podsDeleted"], 2, "{status}");
    place.nothing_left("job").await;
    assert_eq!(place.of::<Pod>("job").await, ["job-driver-1"]);
    place.end().await;
}
