//! Ends that come from outside: deadlines, refusals, agents that do not want to end, pods that are told to.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    pod::{ONE, Pod, REUSED, Shape, eventually, lives},
    router::{FakeRouter, offer},
};

fn offer_with_deadline(seconds: f64) -> serde_json::Value {
    let mut offer = offer();
    offer["deadline_seconds"] = json!(seconds);
    offer
}

#[tokio::test]
async fn an_agent_that_hangs_ends_at_its_deadline() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer_with_deadline(0.5));
    let mut pod = Pod::function(&router, ONE, "stubborn_agent.polite");
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "deadline", "{result:#}");
    assert!(pod.ended_well().await);
}

/// Swallows cancellation, or blocks in a thread: its process goes, and the next session gets a fresh one.
#[tokio::test]
async fn an_agent_that_ignores_its_cancellation_loses_its_process() {
    for stubborn in [
        "swallowing",
        "blocking_the_loop",
        "stopping_its_process",
        "blocking_a_thread",
    ] {
        let router = FakeRouter::start().await;
        let id = router.offer(offer_with_deadline(0.5));
        let mut pod = Pod::function(&router, REUSED, &format!("stubborn_agent.{stubborn}"));
        let (_, chat) = router.chats(1).await[0].clone();
        let result = router.result(&id).await;
        assert_eq!(result["outcome"], "deadline", "{stubborn}: {result:#}");
        let pid = chat["pid"].to_string();
        eventually("the end of the process", || !lives(&pid)).await;
        let next = router.offer(offer_with_deadline(0.5));
        assert_eq!(
            router.result(&next).await["outcome"],
            "deadline",
            "{stubborn}"
        );
        router.close();
        assert!(pod.ended_well().await, "{stubborn}");
    }
}

#[tokio::test]
async fn a_thread_that_runs_python_is_cancelled_without_its_process() {
    let router = FakeRouter::start().await;
    let shape = Shape {
        concurrent: 1,
        sessions_per_pod: 2,
    };
    let mut pod = Pod::function(&router, shape, "stubborn_agent.busy_thread");
    let mut pids = Vec::new();
    for _ in 0..2 {
        let id = router.offer(offer_with_deadline(0.5));
        assert_eq!(router.result(&id).await["outcome"], "deadline");
        pids.push(router.chats(1).await.last().unwrap().1["pid"].clone());
    }
    assert_eq!(pids[0], pids[1]);
    assert!(pod.ended_well().await);
}

#[tokio::test]
async fn another_session_of_the_process_outlives_a_stubborn_one() {
    let router = FakeRouter::start().await;
    let mut pod = Pod::function(
        &router,
        Shape {
            concurrent: 2,
            sessions_per_pod: 2,
        },
        "stubborn_agent.either",
    );
    let mut stubborn = offer_with_deadline(0.5);
    stubborn["metadata"]["stubborn"] = json!(true);
    let stubborn = router.offer(stubborn);
    let other = router.offer(offer());
    assert_eq!(router.result(&stubborn).await["outcome"], "deadline");
    std::fs::write(pod.directory.path().join("go"), "").unwrap();
    assert_eq!(router.result(&other).await["outcome"], "completed");
    assert!(pod.ended_well().await);
}

/// As Miles's client does it, whatever the answer says.
#[tokio::test]
async fn a_client_that_retries_a_refusal_sixty_times_is_gone_with_the_drains_end() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let mut pod = Pod::function(&router, ONE, "sixty_tries_agent.run");
    router.chats(1).await;
    router.fence();
    router.chats(2).await;
    let event = json!({"event": "abort", "abort_id": "a1", "timeout_seconds": 10, "drain_seconds": 0.3, "args": {}});
    router.abort(&[&id], &event);
    // Its sixty tries take a minute, twice as long as a result is waited for here: what ends it is the drain's end.
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "aborted", "{result:#}");
    assert_eq!(result["exit_code"], Value::Null, "{result:#}");
    assert!(pod.ended_well().await);
}

#[tokio::test]
async fn the_stand_in_of_miless_client_stops_at_a_refusal() {
    let router = FakeRouter::start().await;
    router.fence();
    let id = router.offer(offer());
    let _pod = Pod::function(&router, ONE, "miles_agent.run");
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "agent_failed");
    assert!(
        result["error"].as_str().unwrap().contains("rollout closed"),
        "{result:#}"
    );
    assert_eq!(router.chats_now(), 1);
}

#[tokio::test]
async fn a_session_that_the_router_forgot_ends_and_is_not_reported() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let mut pod = Pod::function(&router, ONE, "stubborn_agent.polite");
    router.chats(1).await;
    router.forget(&id);
    assert!(pod.ended_well().await);
    assert_eq!(router.results_of(&id), 0);
}

#[tokio::test]
async fn a_pod_that_is_told_to_end_runs_the_hook_and_reports_within_half_its_grace_period() {
    for first_told in ["launcher", "shim"] {
        let router = FakeRouter::start().await;
        let id = router.offer(offer());
        let mut pod = Pod::function(&router, ONE, "sync_hook_agent.run_named");
        router.chats(1).await;
        let told = if first_told == "launcher" {
            &pod.launcher
        } else {
            &pod.shim
        };
        kill(
            Pid::from_raw(told.child.id().unwrap().cast_signed()),
            Signal::SIGTERM,
        )
        .unwrap();
        let result = router.result(&id).await;
        assert_eq!(
            result["outcome"], "infra_failed",
            "{first_told}: {result:#}"
        );
        assert_eq!(
            result["hook"]["result"], "succeeded",
            "{first_told}: {result:#}"
        );
        pod.ended().await;
        assert!(pod.directory.path().read_dir().unwrap().all(|entry| {
            let name = entry.unwrap().file_name();
            name != "shim" && !name.to_string_lossy().starts_with("session-")
        }));
    }
}

/// As Kubernetes deletes a pod: the agent's container is told, the launcher is not. Whatever the agent does, its result is posted while
/// its container still lives: a shim whose half of the grace period is over ends by itself, and its sessions would be lost.
#[tokio::test]
async fn the_end_of_a_pod_waits_for_no_agent_and_loses_no_result() {
    for agent in [
        "hanging_hook_agent.run",
        "blocking_hook_agent.run",
        "stubborn_agent.swallowing",
        "stubborn_agent.blocking_the_loop",
        "stubborn_agent.stopping_its_process",
        "stubborn_agent.blocking_a_thread",
    ] {
        let router = FakeRouter::start().await;
        let id = router.offer(offer());
        let mut pod = Pod::function(&router, ONE, agent);
        router.chats(1).await;
        kill(
            Pid::from_raw(pod.shim.child.id().unwrap().cast_signed()),
            Signal::SIGTERM,
        )
        .unwrap();
        let result = router.result(&id).await;
        assert_eq!(result["outcome"], "infra_failed", "{agent}: {result:#}");
        let error = result["error"].as_str().unwrap();
        assert!(
            error.contains("the agent pod was told to end"),
            "{agent}: {error}"
        );
        assert!(!error.contains("lost"), "{agent}: {error}");
        pod.ended().await;
        assert_eq!(router.results_of(&id), 1);
    }
}
