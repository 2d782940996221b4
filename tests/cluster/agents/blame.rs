//! Whose failure it is: an agent that runs out of memory, a sandbox that dies below its agent, an agent that fails beside a good sandbox.

use std::time::Duration;

use serde_json::{Value, json};

use super::{agents, directory, ended_well, metadata, program};
use crate::runtime::jobs::place::Place;
use crate::runtime::pools::condition;

/// A few Pods after each other, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(4);
/// Where a sandbox listens.
const HERE: &str = "127.0.0.1:9000";

/// One session at a time.
fn one(agentic: &Value) -> Value {
    json!({
        "generate": {"agentic": agentic},
        "rollout": {"batchSize": 1, "samplesPerPrompt": 1, "concurrency": {"sessions": 1}},
    })
}

async fn completes(place: &Place, job: &str) -> Value {
    place
        .comes_true(&format!("{job} is complete"), LIMIT, async || {
            condition(&place.jobs, job, "Complete").await == "True/TargetReached"
        })
        .await;
    place.status(job).await
}

/// What is said about failures of this reason.
fn told<'a>(status: &'a Value, reason: &str) -> &'a str {
    let failures = status["recentFailures"].as_array().unwrap();
    let found = failures.iter().find(|failure| failure["reason"] == reason);
    let found = found.unwrap_or_else(|| panic!("no {reason}: {status}"));
    found["message"].as_str().unwrap()
}

#[tokio::test]
async fn an_agent_that_runs_out_of_memory_is_run_again_once_and_fails_by_itself_after_that() {
    let place = Place::new("memory").await;
    let mut agentic = agents(&["eats"], &json!([]), "");
    let agent = &mut agentic["agent"]["container"]["template"]["spec"]["containers"][0];
    agent["resources"]["limits"] = json!({"memory": "64Mi"});
    place.job("job", &one(&agentic)).await;
    let status = completes(&place, "job").await;
    let sessions = &status["progress"]["sessions"];
    assert_eq!(sessions["infraFailed"], 1, "{status}");
    assert_eq!(sessions["agentFailed"], 1, "{status}");
    for reason in ["out_of_memory", "agent_failed"] {
        let said = told(&status, reason);
        assert!(said.contains("memory limit"), "{reason}: {said}");
    }
    let samples = metadata(&place, "job").await;
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0]["agent_outcome"], "agent_failed", "{samples:?}");
    assert_eq!(samples[0]["out_of_memory"], true, "{samples:?}");
    place.nothing_left("job").await;
    place.verify().await;
    place.end().await;
}

/// Agents beside a sandbox.
fn beside_a_sandbox(arguments: &[&str]) -> Value {
    let env = json!([{"name": "SANDBOX_URL", "value": format!("http://{HERE}")}]);
    let mut sandbox = program("sandbox", &["sandbox", HERE], &json!([]));
    sandbox["startupProbe"] =
        json!({"exec": {"command": ["/agents", "reaches", HERE]}, "periodSeconds": 1});
    let mut agentic = agents(arguments, &env, "marks");
    agentic["sandbox"] = json!({"template": {"spec": {"containers": [sandbox]}}});
    agentic
}

#[tokio::test]
async fn a_sandbox_that_dies_is_not_its_agents_failure_and_an_agent_that_fails_is_not_its_sandboxs()
{
    let place = Place::new("blame").await;
    directory(&place, "marks").await;
    place
        .job("broken", &one(&beside_a_sandbox(&["breaks"])))
        .await;
    let mut fails = one(&beside_a_sandbox(&["exits"]));
    fails["dataset"] = json!({"inline": [{"prompt": [{"role": "user", "content": "end with 3"}]}]});
    place.job("fails", &fails).await;

    let status = completes(&place, "broken").await;
    let sessions = &status["progress"]["sessions"];
    assert_eq!(sessions["infraFailed"], 1, "{status}");
    assert_eq!(sessions["agentFailed"], 0, "{status}");
    assert_eq!(ended_well(sessions), 1, "{status}");
    let said = told(&status, "sandbox_failed");
    assert!(
        said.contains("the container sandbox ended while the agent ran")
            && said.ends_with("(7): the disk is gone"),
        "{said}"
    );
    for one in metadata(&place, "broken").await {
        assert_eq!(one["whole"], true, "{one}");
    }

    let status = completes(&place, "fails").await;
    let sessions = &status["progress"]["sessions"];
    assert_eq!(sessions["infraFailed"], 0, "{status}");
    assert_eq!(sessions["agentFailed"], 1, "{status}");
    for job in ["broken", "fails"] {
        place.nothing_left(job).await;
    }
    place.end().await;
}
