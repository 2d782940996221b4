//! kill -9 of any part, a router that goes away, an agent that cannot be loaded.

use std::io::Write;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::{
    pod::{ONE, Pod, REUSED, Shape, eventually, lives},
    router::{FakeRouter, PATIENCE, offer},
};

fn kill_9(pid: i64) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
}

async fn process_of_the_agent(router: &FakeRouter) -> i64 {
    router.chats(1).await[0].1["pid"].as_i64().unwrap()
}

#[tokio::test]
async fn an_agent_process_that_is_killed_is_the_sessions_failure_and_is_replaced() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let _pod = Pod::function(&router, REUSED, "stubborn_agent.polite");
    kill_9(process_of_the_agent(&router).await);
    let result = router.result(&id).await;
    assert_eq!(result["outcome"], "agent_failed", "{result:#}");
    assert_eq!(result["signal"], 9);
    let next = router.offer(offer());
    router.chats(2).await;
    assert_eq!(router.results_of(&next), 0);
}

#[tokio::test]
async fn when_a_process_of_many_sessions_is_killed_it_is_nobodys_failure() {
    let router = FakeRouter::start().await;
    let ids = [router.offer(offer()), router.offer(offer())];
    let _pod = Pod::function(
        &router,
        Shape {
            concurrent: 2,
            sessions_per_pod: 0,
        },
        "stubborn_agent.polite",
    );
    router.chats(2).await;
    kill_9(process_of_the_agent(&router).await);
    for id in &ids {
        let result = router.result(id).await;
        assert_eq!(result["outcome"], "infra_failed", "{result:#}");
        assert_eq!(result["metadata"], json!({"shared_process_died": true}));
    }
}

/// One that was in such processes is kept apart: what happens to its process then is its own doing, and harms nobody.
#[tokio::test]
async fn a_session_that_is_to_be_alone_has_a_process_of_its_own_that_goes_with_it() {
    let router = FakeRouter::start().await;
    let shape = Shape {
        concurrent: 2,
        sessions_per_pod: 3,
    };
    let mut pod = Pod::function(&router, shape, "deadly_agent.run");
    let other = router.offer(offer());
    let mut deadly = offer();
    deadly["alone"] = json!(true);
    deadly["metadata"]["deadly"] = json!(true);
    let deadly = router.offer(deadly);
    let result = router.result(&deadly).await;
    assert_eq!(result["outcome"], "agent_failed", "{result:#}");
    assert_eq!(result["error"], "the Python host ended with exit code 3");
    let mut innocent = offer();
    innocent["alone"] = json!(true);
    let innocent = router.offer(innocent);
    std::fs::write(pod.directory.path().join("go"), "").unwrap();
    for id in [&other, &innocent] {
        let result = router.result(id).await;
        assert_eq!(result["outcome"], "completed", "{result:#}");
    }
    assert!(pod.ended_well().await);
}

#[tokio::test]
async fn a_session_that_is_to_be_alone_is_cancelled_before_its_process_is_ready() {
    let code = TempDir::new().unwrap();
    let module = "import os, time\nif os.path.exists(os.path.join(os.environ['GIVEN_DIR'], 'slow')):\n    time.sleep(3600)\nasync def run():\n    pass\n";
    std::fs::write(code.path().join("agent.py"), module).unwrap();
    let router = FakeRouter::start().await;
    let mut pod = Pod::function_in(&router, REUSED, "agent.run", code.path());
    let first = router.offer(offer());
    assert_eq!(router.result(&first).await["outcome"], "completed");
    std::fs::write(pod.directory.path().join("slow"), "").unwrap();
    let mut alone = offer();
    alone["alone"] = json!(true);
    alone["deadline_seconds"] = json!(0.5);
    let alone = router.offer(alone);
    let result = router.result(&alone).await;
    assert_eq!(result["outcome"], "deadline", "{result:#}");
    router.close();
    assert!(pod.ended_well().await);
}

#[tokio::test]
async fn a_launcher_that_is_killed_takes_its_sessions_with_it_and_a_new_one_goes_on() {
    let router = FakeRouter::start().await;
    let lost = router.offer(offer());
    let mut pod = Pod::function(&router, REUSED, "stubborn_agent.polite");
    let agent = process_of_the_agent(&router).await;
    kill_9(pod.launcher.child.id().unwrap().into());
    eventually("the end of the agent", || !lives(&agent.to_string())).await;
    pod.restart_launcher(&router, REUSED);
    router.offer(offer());
    router.chats(2).await;
    assert_eq!(router.results_of(&lost), 0);
}

#[tokio::test]
async fn a_shim_that_is_killed_is_reported_and_leaves_nothing_behind() {
    for path in ["stubborn_agent.polite", "stubborn_agent.blocking_the_loop"] {
        let router = FakeRouter::start().await;
        let id = router.offer(offer());
        let mut pod = Pod::function(&router, ONE, path);
        let agent = process_of_the_agent(&router).await;
        kill_9(pod.shim_pid().await.into());
        let result = router.result(&id).await;
        assert_eq!(result["outcome"], "infra_failed", "{result:#}");
        eventually("the end of the agent", || !lives(&agent.to_string())).await;
        pod.ended().await;
    }
}

#[tokio::test]
async fn a_guard_that_is_killed_ends_its_shim() {
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let pod = Pod::function(&router, ONE, "stubborn_agent.polite");
    let agent = process_of_the_agent(&router).await;
    let shim = pod.shim_pid().await;
    kill_9(pod.shim.child.id().unwrap().into());
    assert_eq!(router.result(&id).await["outcome"], "infra_failed");
    eventually("the end of agent and shim", || {
        !lives(&agent.to_string()) && !lives(&shim.to_string())
    })
    .await;
}

#[tokio::test]
async fn a_router_that_is_gone_ends_the_agent_and_then_the_pod() {
    let router = FakeRouter::start().await;
    let mut session = offer();
    session["heartbeat_seconds"] = json!(0.2);
    router.offer(session);
    let script = r#"echo $$ > "$GIVEN_DIR/pid"; exec sleep 1000"#;
    let mut pod = Pod::script(&router, REUSED, script);
    let file = pod.directory.path().join("pid");
    let agent = || std::fs::read_to_string(&file).unwrap_or_default();
    eventually("the agent", || lives(&agent())).await;
    drop(router);
    eventually("the end of the agent", || !lives(&agent())).await;
    // The result is tried for a minute, claims for `router_timeout`; told to end, it does not wait for either.
    kill(
        Pid::from_raw(pod.launcher.child.id().unwrap().cast_signed()),
        Signal::SIGTERM,
    )
    .unwrap();
    pod.ended().await;
}

#[tokio::test]
async fn a_result_that_is_not_taken_is_posted_again() {
    let router = FakeRouter::start().await;
    router.refuse_results(2);
    let id = router.offer(offer());
    let mut pod = Pod::function(&router, ONE, "miles_agent.run");
    assert_eq!(router.result(&id).await["outcome"], "completed");
    assert!(pod.ended_well().await);
    assert_eq!(router.results_of(&id), 1);
}

/// Runs a module with this text, and answers the result of the one session that was offered.
async fn result_of(module: &str, function: &str) -> Value {
    let code = TempDir::new().unwrap();
    std::fs::File::create(code.path().join("agent.py"))
        .unwrap()
        .write_all(module.as_bytes())
        .unwrap();
    let router = FakeRouter::start().await;
    let id = router.offer(offer());
    let mut pod = Pod::function_in(&router, ONE, function, code.path());
    let result = router.result(&id).await;
    timeout(PATIENCE, pod.ended()).await.unwrap();
    result
}

#[tokio::test]
async fn a_module_that_cannot_be_loaded_is_reported_with_the_reason_and_ends_the_pod() {
    // Whether it is known to be the agent's own fault, the same everywhere.
    let (everywhere, maybe) = (true, false);
    let cases = [
        (
            "import not_installed",
            "agent.run",
            "No module named 'not_installed'",
            everywhere,
        ),
        ("def run(:", "agent.run", "SyntaxError", everywhere),
        (
            "import os\nos.environ['NO_SUCH_VARIABLE']",
            "agent.run",
            "NO_SUCH_VARIABLE",
            everywhere,
        ),
        ("1 / 0", "agent.run", "ZeroDivisionError", maybe),
        (
            "raise ConnectionError('no tools')",
            "agent.run",
            "no tools",
            maybe,
        ),
        ("raise SystemExit(3)", "agent.run", "SystemExit", maybe),
        (
            "import os; os.kill(os.getpid(), 9)",
            "agent.run",
            "killed by signal 9",
            maybe,
        ),
        ("x = 1", "agent.run", "has no function 'run'", everywhere),
        ("run = 1", "agent.run", "not a function", everywhere),
        (
            "async def run(messages): pass",
            "agent.run",
            "needs the parameter 'messages'",
            everywhere,
        ),
        (
            "async def run(base_url, /): pass",
            "agent.run",
            "positional-only",
            everywhere,
        ),
        (
            "x = 1",
            "run",
            "not a path of the form module.function",
            everywhere,
        ),
        (
            "x = 1",
            "no_such_module.run",
            "No module named 'no_such_module'",
            everywhere,
        ),
    ];
    for (module, function, expected, everywhere) in cases {
        let result = result_of(module, function).await;
        assert_eq!(result["outcome"], "infra_failed", "{module}: {result:#}");
        let mut metadata = json!({"agent_load_failed": true});
        if everywhere {
            metadata["agent_load_fault"] = json!("agent");
        }
        assert_eq!(result["metadata"], metadata, "{module}");
        assert!(
            result["error"].as_str().unwrap().contains(expected),
            "{module}: {result:#}"
        );
    }
}

#[tokio::test]
async fn what_an_agent_raises_or_returns_wrongly_is_its_failure_with_the_reason() {
    let cases = [
        (
            "async def run(base_url):\n    raise ValueError('no tools')",
            "ValueError: no tools",
        ),
        (
            "def run(base_url):\n    raise ValueError('no tools')",
            "ValueError: no tools",
        ),
        ("async def run():\n    raise SystemExit(4)", "exit(4)"),
        (
            "import asyncio\nasync def run():\n    raise asyncio.CancelledError",
            "cancelled itself",
        ),
        (
            "async def run():\n    raise ValueError('half \\ud800 a character')",
            "half ? a character",
        ),
        ("async def run():\n    return [1]", "returned a list"),
        (
            "async def run():\n    return {'x': 'z' * 5_000_000}",
            "the limit is 4194304",
        ),
        (
            "async def run():\n    return {'reward': float('nan')}",
            "what JSON cannot carry",
        ),
        (
            "async def run():\n    return {'reward': object()}",
            "object has no JSON form",
        ),
        (
            "def run():\n    raise BaseException('x' * 100000 + ' the reason')",
            "the reason",
        ),
    ];
    for (module, expected) in cases {
        let result = result_of(module, "agent.run").await;
        assert_eq!(result["outcome"], "agent_failed", "{module}: {result:#}");
        let error = result["error"].as_str().unwrap();
        assert!(error.contains(expected), "{module}: {result:#}");
        assert!(error.len() <= 8 * 1024);
        assert!(
            !error.contains("rollout_host"),
            "the host's own frames are not the user's: {error}"
        );
    }
}

#[tokio::test]
async fn a_function_that_prints_a_megabyte_forks_and_detaches_does_no_harm() {
    let module = r"
import os, subprocess, sys

async def run(base_url, metadata):
    print('x' * 1_000_000)
    print('y' * 1_000_000, file=sys.stderr)
    if os.fork() == 0:
        return {'child': True}
    detached = subprocess.Popen(['sleep', '1000'], start_new_session=True)
    raise RuntimeError(f'pid={detached.pid}')
";
    let result = result_of(module, "agent.run").await;
    assert_eq!(result["outcome"], "agent_failed", "{result:#}");
    assert_eq!(result["log_tail"].as_str().unwrap().len(), 64 * 1024);
    let error = result["error"].as_str().unwrap();
    let pid = error
        .split("pid=")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    assert!(!lives(pid.trim_matches('\'')), "{error}");
}
