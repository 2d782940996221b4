//! The agent's `abort` hook: once per process and abort, in the process that runs the sessions, never in the way of the end.

use serde_json::{Value, json};

use crate::{
    pod::{ONE, Pod, Shape, eventually},
    router::{FakeRouter, offer},
};

const FOUR: Shape = Shape {
    concurrent: 4,
    sessions_per_pod: 0,
};

fn abort(id: &str, timeout_seconds: f64) -> Value {
    json!({"event": "abort", "reason": "enough groups", "abort_id": id, "timeout_seconds": timeout_seconds,
        "args": {"rollout_id": 3, "session_server_instance_id": "from-the-driver"}})
}

/// Four sessions of an agent that each made a turn, and then an abort of all.
async fn aborted(router: &FakeRouter, path: &str, event: &Value) -> (Pod, Vec<Value>) {
    let ids: Vec<_> = (0..4).map(|_| router.offer(offer())).collect();
    let pod = Pod::function(router, FOUR, path);
    router.chats(4).await;
    router.abort(&ids.iter().collect::<Vec<_>>(), event);
    let mut results = Vec::new();
    for id in &ids {
        results.push(router.result(id).await);
    }
    (pod, results)
}

#[tokio::test]
async fn runs_once_for_all_sessions_of_a_process_and_can_reach_what_they_started() {
    let router = FakeRouter::start().await;
    let (_pod, results) = aborted(&router, "hooked_agent.run", &abort("a1", 10.0)).await;
    let succeeded = json!({"abort_id": "a1", "result": "succeeded", "error": null});
    assert!(results.iter().any(|result| result["hook"] == succeeded));
    for result in &results {
        assert_eq!(result["outcome"], "completed", "{result:#}");
        // The hook of one session's abort may have ended another session before that one was told.
        let hook = &result["hook"];
        assert!(hook.is_null() || *hook == succeeded, "{result:#}");
        let seen = &result["metadata"];
        assert_eq!(seen["hook_calls"], 1);
        assert_eq!(seen["same_process"], true);
        assert_eq!(seen["same_loop"], true);
        assert_eq!(seen["args"]["rollout_id"], 3);
        assert_eq!(seen["args"]["my_flag"], 7);
        assert_eq!(
            seen["args"]["session_server_instance_id"],
            "from-the-driver"
        );
        assert_eq!(
            seen["args"]["session_server_instance_ids"],
            json!({"127.0.0.1:1": "instance-1"})
        );
        assert_eq!(seen["args"]["session_ids"].as_array().unwrap().len(), 4);
    }
}

#[tokio::test]
async fn a_sync_hook_runs_too() {
    let router = FakeRouter::start().await;
    let (_pod, results) = aborted(&router, "sync_hook_agent.run", &abort("a1", 10.0)).await;
    for result in &results {
        assert_eq!(result["outcome"], "aborted", "{result:#}");
        assert_eq!(result["hook"]["result"], "succeeded");
    }
}

#[tokio::test]
async fn without_a_hook_work_drains_as_before() {
    let router = FakeRouter::start().await;
    let mut event = abort("a1", 10.0);
    event["drain_seconds"] = json!(20);
    let (_pod, results) = aborted(&router, "hookless_agent.run", &event).await;
    for result in &results {
        assert_eq!(result["outcome"], "completed", "{result:#}");
        assert_eq!(result["metadata"]["drained"], true);
        assert_eq!(
            result["hook"],
            json!({"abort_id": "a1", "result": "none", "error": null})
        );
    }
}

#[tokio::test]
async fn a_hook_that_raises_is_reported_and_ends_the_sessions_all_the_same() {
    let router = FakeRouter::start().await;
    let (_pod, results) = aborted(&router, "raising_hook_agent.run", &abort("a1", 10.0)).await;
    for result in &results {
        assert_eq!(result["outcome"], "aborted", "{result:#}");
        assert_eq!(result["hook"]["result"], "failed");
        // A dependency that is missing inside the hook is an error, not "no hook".
        assert!(
            result["hook"]["error"]
                .as_str()
                .unwrap()
                .contains("No module named 'not_installed'"),
            "{result:#}"
        );
    }
}

/// Calling a generator function runs nothing of it.
#[tokio::test]
async fn a_hook_whose_body_did_not_run_is_no_success() {
    for (path, what) in [
        ("generator_hook_agent.run_async", "async_generator"),
        ("generator_hook_agent.run_sync", "generator"),
        ("generator_hook_agent.run_forgotten", "coroutine"),
    ] {
        let router = FakeRouter::start().await;
        let (_pod, results) = aborted(&router, path, &abort("a1", 10.0)).await;
        for result in &results {
            assert_eq!(result["outcome"], "aborted", "{result:#}");
            assert_eq!(result["hook"]["result"], "failed", "{result:#}");
            let said = result["hook"]["error"].as_str().unwrap();
            let expected = format!("abort(args) returned a {what}, whose body has not run");
            assert!(said.starts_with(&expected), "{said}");
        }
    }
}

#[tokio::test]
async fn a_hook_that_hangs_is_given_up() {
    let router = FakeRouter::start().await;
    let (_pod, results) = aborted(&router, "hanging_hook_agent.run", &abort("a1", 0.3)).await;
    for result in &results {
        assert_eq!(result["outcome"], "aborted", "{result:#}");
        assert_eq!(result["hook"]["result"], "timed_out");
    }
}

#[tokio::test]
async fn a_hook_that_blocks_the_event_loop_is_given_up_with_its_process() {
    let router = FakeRouter::start().await;
    let (_pod, results) = aborted(&router, "blocking_hook_agent.run", &abort("a1", 0.3)).await;
    for result in &results {
        assert_eq!(result["outcome"], "aborted", "{result:#}");
        assert_eq!(result["hook"]["result"], "timed_out");
    }
}

#[tokio::test]
async fn an_abort_of_one_session_leaves_the_others() {
    let router = FakeRouter::start().await;
    let first = router.offer(offer());
    let second = router.offer(offer());
    let mut pod = Pod::function(
        &router,
        Shape {
            concurrent: 2,
            sessions_per_pod: 2,
        },
        "patient_agent.run",
    );
    router.chats(2).await;
    router.abort(&[&first], &abort("a1", 5.0));
    let aborted = router.result(&first).await;
    assert_eq!(aborted["outcome"], "aborted", "{aborted:#}");
    assert_eq!(router.results_of(&second), 0);
    std::fs::write(pod.directory.path().join("go"), "").unwrap();
    let completed = router.result(&second).await;
    assert_eq!(completed["outcome"], "completed", "{completed:#}");
    assert!(pod.ended_well().await);
}

#[tokio::test]
async fn a_command_has_no_hook_but_is_told_at_once_and_may_end_by_itself() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let script = r#"
        trap 'sleep 0.2; echo "{\"told\": true}" > "$ROLLOUT_RESULT_FILE"; exit 0' TERM
        touch "$GIVEN_DIR/up"
        while :; do sleep 0.02; done
    "#;
    let pod = Pod::script(&router, ONE, script);
    let up = pod.directory.path().join("up");
    eventually("the command", || up.exists()).await;
    let mut event = abort("a1", 5.0);
    event["drain_seconds"] = json!(60);
    router.abort(&[&id], &event);
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "completed", "{result:#}");
    assert_eq!(result["hook"]["result"], "none");
    assert_eq!(result["metadata"], json!({"told": true}));
}

#[tokio::test]
async fn a_command_that_ignores_an_abort_is_killed_at_the_drains_end() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let script = r#"trap '' TERM; touch "$GIVEN_DIR/up"; while :; do sleep 0.02; done"#;
    let pod = Pod::script(&router, ONE, script);
    let up = pod.directory.path().join("up");
    eventually("the command", || up.exists()).await;
    let mut event = abort("a1", 5.0);
    event["drain_seconds"] = json!(0.2);
    router.abort(&[&id], &event);
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "aborted", "{result:#}");
    assert_eq!(result["signal"], 9);
}
