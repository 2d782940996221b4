//! Commands as agents: what they get, what they give, and what they leave behind.

use serde_json::json;

use crate::{
    pod::{ONE, Pod, REUSED, Shape, eventually, lives},
    router::{FakeRouter, offer},
};

#[tokio::test]
async fn gets_the_variables_and_files_of_its_session_and_gives_a_result() {
    let router = FakeRouter::start().await;
    let mut session = offer();
    session["resume"] = json!(true);
    let id = router.offer(session);
    let script = r#"
        test "$OPENAI_BASE_URL" = "$ROLLOUT_BASE_URL/v1" || exit 10
        test "$OPENAI_API_KEY" = "token-of-$ROLLOUT_SESSION_ID" || exit 11
        test "$ANTHROPIC_API_KEY" = "$OPENAI_API_KEY" || exit 12
        test "$ANTHROPIC_BASE_URL" = "$ROLLOUT_BASE_URL" || exit 13
        test "$ROLLOUT_DEADLINE_SECONDS" = 60 || exit 14
        test "$ROLLOUT_RESUME" = 1 || exit 15
        test "$GIVEN" = "by the user" || exit 16
        grep -q '2+2' "$ROLLOUT_PROMPT_FILE" || exit 17
        grep -q temperature "$ROLLOUT_REQUEST_FILE" || exit 18
        grep -q session_server_id "$ROLLOUT_METADATA_FILE" || exit 19
        test "$(stat -c %a "$(dirname "$ROLLOUT_PROMPT_FILE")")" = 700 || exit 20
        dirname "$ROLLOUT_PROMPT_FILE" > "$GIVEN_DIR/where"
        echo '{"reward": 0.5, "exit_status": "submitted"}' > "$ROLLOUT_RESULT_FILE"
    "#;
    let mut pod = Pod::script(&router, ONE, script);
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "completed", "{result:#}");
    assert_eq!(
        result["metadata"],
        json!({"reward": 0.5, "exit_status": "submitted"})
    );
    assert_eq!(result["exit_code"], 0);
    assert_eq!(result["log_tail"], json!(null));
    let files = std::fs::read_to_string(pod.directory.path().join("where")).unwrap();
    assert!(!std::path::Path::new(files.trim()).exists());
    assert!(pod.ended_well().await);
}

#[tokio::test]
async fn a_command_that_fails_has_failed_with_its_code_and_last_output() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let _pod = Pod::script(&router, ONE, "echo to out; echo to err >&2; exit 3");
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "agent_failed", "{result:#}");
    assert_eq!(result["exit_code"], 3);
    let tail = result["log_tail"].as_str().unwrap();
    assert!(tail.contains("to out") && tail.contains("to err"));
}

#[tokio::test]
async fn a_command_that_is_killed_has_failed_with_the_signal() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let _pod = Pod::script(&router, ONE, "kill -9 $$");
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "agent_failed", "{result:#}");
    assert_eq!(result["signal"], 9);
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_nobodys_result() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let _pod = Pod::command(&router, ONE, &["/no/such/agent"]);
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "infra_failed", "{result:#}");
    assert!(result["error"].as_str().unwrap().contains("/no/such/agent"));
    assert_eq!(
        result["metadata"],
        json!({"agent_load_failed": true, "agent_load_fault": "agent"})
    );
}

#[tokio::test]
async fn a_flood_of_output_costs_its_last_64_kib() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let script = "head -c 5000000 /dev/zero | tr '\\0' x; head -c 5000000 /dev/zero | tr '\\0' y >&2; printf 'the end'; exit 1";
    let _pod = Pod::script(&router, ONE, script);
    let result = router.result(&id).await;
    let tail = result["log_tail"].as_str().unwrap();
    assert_eq!(tail.len(), 64 * 1024);
    assert!(tail.contains("the end"), "{}", &tail[tail.len() - 100..]);
}

#[tokio::test]
async fn a_result_file_that_is_no_result_is_the_agents_error() {
    let cases = [
        ("echo 'not json' > $ROLLOUT_RESULT_FILE", "no JSON object"),
        ("echo '[1]' > $ROLLOUT_RESULT_FILE", "no JSON object"),
        (
            "head -c 5000000 /dev/zero > $ROLLOUT_RESULT_FILE",
            "larger than 4 MiB",
        ),
        (
            "ln -s /etc/passwd $ROLLOUT_RESULT_FILE",
            "ROLLOUT_RESULT_FILE",
        ),
        ("mkfifo $ROLLOUT_RESULT_FILE", "not a regular file"),
    ];
    for (script, expected) in cases {
        let router = FakeRouter::start().await;
        let id = router.offer(offer());
        let _pod = Pod::script(&router, ONE, script);
        let result = router.result(&id).await;
        assert_eq!(result["outcome"], "agent_failed", "{script}: {result:#}");
        assert!(
            result["error"].as_str().unwrap().contains(expected),
            "{script}: {result:#}"
        );
        assert_eq!(result["metadata"], json!({}), "{script}");
    }
}

/// However it detaches: a child, a new session, a daemon, and a daemon with a clean environment.
#[tokio::test]
async fn nothing_of_a_session_outlives_it() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let script = r#"
        cd "$GIVEN_DIR"
        record='echo $$ >> pids; exec sleep 1000'
        sh -c "$record" &
        setsid sh -c "$record" &
        (setsid sh -c "$record" &) 
        (env -i PATH="$PATH" setsid sh -c "$record" &)
        while [ "$(wc -l < pids)" -lt 4 ]; do sleep 0.01; done
    "#;
    let mut pod = Pod::script(&router, ONE, script);
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "completed", "{result:#}");
    let pids = std::fs::read_to_string(pod.directory.path().join("pids")).unwrap();
    assert_eq!(pids.lines().count(), 4);
    assert!(pids.lines().all(|pid| !lives(pid)), "{pids}");
    assert!(pod.ended_well().await);
}

#[tokio::test]
async fn ending_one_session_leaves_the_processes_of_another() {
    let router = FakeRouter::start().await;
    let script = r#"
        cd "$GIVEN_DIR"
        if [ "$(grep -c long "$ROLLOUT_METADATA_FILE")" = 0 ]; then
            setsid sh -c 'echo $$ > short; exec sleep 1000' &
            while [ ! -s short ]; do sleep 0.01; done
        else
            setsid sh -c 'echo $$ > long; exec sleep 1000' &
            while [ ! -e go ]; do sleep 0.01; done
        fi
    "#;
    let mut pod = Pod::script(
        &router,
        Shape {
            concurrent: 2,
            sessions_per_pod: 2,
        },
        script,
    );
    let mut long = offer();
    long["metadata"]["long"] = json!(true);
    let long = router.offer(long);
    let directory = pod.directory.path().to_owned();
    let pid_in = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
    eventually("the long session", || !pid_in("long").is_empty()).await;
    let short = router.offer(offer());
    assert_eq!(router.result(&short).await["outcome"], "completed");
    assert!(!lives(&pid_in("short")));
    assert!(lives(&pid_in("long")));
    std::fs::write(directory.join("go"), "").unwrap();
    assert_eq!(router.result(&long).await["outcome"], "completed");
    assert!(!lives(&pid_in("long")));
    assert!(pod.ended_well().await);
}

#[tokio::test]
async fn a_command_runs_once_per_session_in_a_pod_that_is_used_again() {
    let router = FakeRouter::start().await;
    let mut pod = Pod::script(
        &router,
        REUSED,
        r#"echo "{\"pid\": $$}" > "$ROLLOUT_RESULT_FILE""#,
    );
    let mut pids = Vec::new();
    for _ in 0..3 {
        let id = router.offer(offer());
        pids.push(router.result(&id).await["metadata"]["pid"].clone());
    }
    pids.dedup();
    assert_eq!(pids.len(), 3);
    router.close();
    assert!(pod.ended_well().await);
}

/// A policy under training will find what can be found.
#[tokio::test]
async fn an_agent_that_looks_for_secrets_finds_its_own_only() {
    let router = FakeRouter::start().await;
    let code = crate::pod::agents().join("snooping_agent.py");
    let python = crate::pod::python();
    let command = [python.to_str().unwrap(), code.to_str().unwrap()];
    let mut pod = Pod::command(
        &router,
        Shape {
            concurrent: 1,
            sessions_per_pod: 2,
        },
        &command,
    );
    for _ in 0..2 {
        let id = router.offer(offer());
        let result = router.result(&id).await;
        assert_eq!(result["outcome"], "completed", "{result:#}");
        let found = &result["metadata"];
        assert_eq!(found["tokens"], json!([format!("token-of-{id}")]));
        assert_eq!(found["sessions"], json!([id]));
        assert_eq!(found["claim_tokens"], json!(0), "{found:#}");
        assert_eq!(found["foreign_variables"], json!([]), "{found:#}");
        assert_eq!(found["second_shim"], json!(""), "{found:#}");
    }
    assert!(pod.ended_well().await);
}
