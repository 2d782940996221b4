//! The courses of a job: to its end, suspended, past its deadline, with a controller or an agent that is killed.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use super::place::{CALL, Place, endless};
use crate::runtime::controller::{Controller, until};
use crate::runtime::pools::condition;

#[tokio::test]
async fn a_single_turn_job_ends_with_samples_and_leaves_only_its_driver() {
    let place = Place::new("single").await;
    place.job("job", &json!({})).await;
    place.becomes("job", "Complete", "True/TargetReached").await;
    let status = place.status("job").await;
    assert_eq!(status["phase"], "Succeeded");
    assert_eq!(status["attempt"], 1);
    assert_eq!(status["display"], json!({"groups": "2/2", "pool": "pool"}));
    assert_eq!(status["output"]["samples"], 4);
    assert_eq!(status["output"]["url"], "pvc://samples/job");
    place.no_warnings("job").await;
    place.nothing_left("job").await;
    assert_eq!(place.of::<Pod>("job").await, ["job-driver-1"]);
    until("the job is free", &place.controller, async || {
        place
            .jobs
            .get("job")
            .await
            .unwrap()
            .metadata
            .finalizers
            .is_none()
    })
    .await;
    // A finished job is never written again.
    let version = place.jobs.get("job").await.unwrap().resource_version();
    place.verify().await;
    assert_eq!(
        place.jobs.get("job").await.unwrap().resource_version(),
        version
    );
    place.end().await;
}

#[tokio::test]
async fn an_agentic_job_gets_its_pods_by_slot_and_generation() {
    let place = Place::new("agentic").await;
    place
        .job("job", &json!({"generate": Place::agentic(CALL)}))
        .await;
    let mut seen = std::collections::BTreeSet::new();
    until("the job is complete", &place.controller, async || {
        seen.extend(place.of::<Pod>("job").await);
        condition(&place.jobs, "job", "Complete").await == "True/TargetReached"
    })
    .await;
    for name in ["job-agent-0-1", "job-agent-1-1", "job-agent-2-1"] {
        assert!(seen.contains(name), "{seen:?}");
    }
    // Four sessions, three at once, one to a Pod.
    assert!(seen.iter().any(|name| name.ends_with("-2")), "{seen:?}");
    let status = place.status("job").await;
    assert_eq!(status["progress"]["sessions"]["infraFailed"], 0, "{status}");
    assert_eq!(status["progress"]["sessions"]["agentFailed"], 0, "{status}");
    place.nothing_left("job").await;
    assert_eq!(place.of::<Pod>("job").await, ["job-driver-1"]);
    place.verify().await;
    place.end().await;
}

#[tokio::test]
async fn a_job_is_suspended_resumed_and_deleted() {
    let place = Place::new("suspended").await;
    place.job("job", &endless()).await;
    place.becomes("job", "Sampling", "True/AsExpected").await;
    place.merge("job", json!({"spec": {"suspend": true}})).await;
    place.becomes("job", "Suspended", "True/Suspended").await;
    until("the driver is gone", &place.controller, async || {
        place.of::<Pod>("job").await.is_empty()
    })
    .await;
    place
        .merge("job", json!({"spec": {"suspend": false}}))
        .await;
    place.becomes("job", "Sampling", "True/AsExpected").await;
    assert_eq!(place.status("job").await["attempt"], 2);
    assert_eq!(place.of::<Pod>("job").await, ["job-driver-2"]);
    let foreground = DeleteParams::foreground();
    place.jobs.delete("job", &foreground).await.unwrap();
    until("the job is gone", &place.controller, async || {
        place.jobs.get_opt("job").await.unwrap().is_none()
    })
    .await;
    place.nothing_left("job").await;
    until("its pods are gone", &place.controller, async || {
        place.of::<Pod>("job").await.is_empty()
    })
    .await;
    place.end().await;
}

#[tokio::test]
async fn a_job_fails_at_its_deadline_with_what_it_has() {
    let place = Place::new("deadline").await;
    let mut spec = endless();
    spec["activeDeadlineSeconds"] = json!(5);
    place.job("job", &spec).await;
    place
        .becomes("job", "Failed", "True/DeadlineExceeded")
        .await;
    assert_eq!(place.status("job").await["phase"], "Failed");
    place.nothing_left("job").await;
    place.end().await;
}

#[tokio::test]
async fn a_controller_that_was_killed_is_followed_by_one_that_goes_on() {
    let mut place = Place::new("killed").await;
    place.job("job", &endless()).await;
    place.becomes("job", "Sampling", "True/AsExpected").await;
    place.controller.signal(nix::sys::signal::Signal::SIGKILL);
    place.controller.end().await;
    let driver = place.all::<Pod>().get("job-driver-1").await.unwrap().uid();
    place.controller = Controller::ready(&place.namespace, &[]).await;
    let before = place.status("job").await["progress"]["groups"]["filtered"].as_i64();
    until("progress goes on", &place.controller, async || {
        place.status("job").await["progress"]["groups"]["filtered"].as_i64() > before
    })
    .await;
    assert_eq!(place.status("job").await["attempt"], 1);
    assert_eq!(
        place.all::<Pod>().get("job-driver-1").await.unwrap().uid(),
        driver
    );
    place.end().await;
}

#[tokio::test]
async fn the_session_of_a_deleted_agents_pod_runs_again_in_another() {
    let place = Place::new("lost-agent").await;
    let agent = json!({"name": "agent", "image": "localhost/tiny:1", "command": ["/bin/busybox", "sleep", "3600"]});
    let container = json!({"template": {"spec": {"containers": [agent]}}});
    let one = json!({
        "generate": {"agentic": {"agent": {"container": container}}},
        "rollout": {"batchSize": 1, "samplesPerPrompt": 1, "concurrency": {"sessions": 1}},
    });
    place.job("job", &one).await;
    let pods = place.all::<Pod>();
    until("the agent works", &place.controller, async || {
        let pod = pods.get_opt("job-agent-0-1").await.unwrap();
        let status = pod.and_then(|pod| pod.status);
        status.is_some_and(|status| status.phase.as_deref() == Some("Running"))
    })
    .await;
    pods.delete("job-agent-0-1", &DeleteParams::default())
        .await
        .unwrap();
    // In another slot, as long as the Pod ends; in the next Pod of its own after that.
    until("its session runs again", &place.controller, async || {
        let agents = running_agents(&place).await;
        agents.iter().any(|name| name != "job-agent-0-1")
            && place.status("job").await["progress"]["sessions"]["infraFailed"] == 1
    })
    .await;
    assert_eq!(place.status("job").await["phase"], "Running");
    place
        .jobs
        .delete("job", &DeleteParams::default())
        .await
        .unwrap();
    until("nothing runs", &place.controller, async || {
        place.of::<Pod>("job").await.is_empty()
            && place.jobs.get_opt("job").await.unwrap().is_none()
    })
    .await;
    place.end().await;
}

#[tokio::test]
async fn agents_that_nobody_needs_go_while_the_job_runs_and_the_busy_one_stays() {
    let place = Place::new("surplus").await;
    let mut spec = json!({
        "generate": Place::agentic("/bin/busybox sleep 3600"),
        "rollout": {"batchSize": 1, "samplesPerPrompt": 1, "concurrency": {"sessions": 3}},
    });
    spec["generate"]["agentic"]["warmPods"] = json!(3);
    place.job("job", &spec).await;
    until("three agents run", &place.controller, async || {
        running_agents(&place).await.len() == 3
    })
    .await;
    let edit = json!({"spec": {"generate": {"agentic": {"warmPods": 0}}}});
    place.merge("job", edit).await;
    until("two are gone", &place.controller, async || {
        running_agents(&place).await.len() == 1
    })
    .await;
    let sessions = &place.status("job").await["progress"]["sessions"];
    assert_eq!(sessions["active"], 1, "{sessions}");
    assert_eq!(sessions["infraFailed"], 0, "{sessions}");
    place.end().await;
}

async fn running_agents(place: &Place) -> Vec<String> {
    let pods = place
        .all::<Pod>()
        .list(&ListParams::default())
        .await
        .unwrap();
    let pods = pods.into_iter().filter(|pod| {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    });
    pods.map(|pod| pod.name_any())
        .filter(|name| name.contains("-agent-"))
        .collect()
}
