//! The plug-in host, spoken to as the driver does.

use std::{path::PathBuf, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::{sleep, timeout},
};

use crate::{
    pod::{agents, children, eventually, lives, python},
    process::{Process, Role, start, start_at, start_heard},
    router::PATIENCE,
};

struct Host {
    directory: TempDir,
    supervisor: Process,
}

impl Host {
    fn start() -> Self {
        Self::start_with(python(), Duration::from_mins(1))
    }

    fn start_with(python: PathBuf, unresponsive_after: Duration) -> Self {
        Self::start_as(python, unresponsive_after, |role| start(&role))
    }

    /// Below a guard, as it runs beside a driver.
    fn start_guarded() -> Self {
        Self::start_as(python(), Duration::from_mins(1), |role| {
            start(&Role::Guarded(Box::new(role)))
        })
    }

    fn start_as(
        python: PathBuf,
        unresponsive_after: Duration,
        start: impl FnOnce(Role) -> Process,
    ) -> Self {
        let directory = TempDir::new().unwrap();
        let supervisor = start(Role::Plugins {
            socket: directory.path().join("plugins.sock"),
            python,
            code: agents(),
            unresponsive_after,
        });
        Self {
            directory,
            supervisor,
        }
    }

    async fn connect(&self) -> BufReader<UnixStream> {
        let connected = async {
            loop {
                match UnixStream::connect(self.directory.path().join("plugins.sock")).await {
                    Ok(stream) => return BufReader::new(stream),
                    Err(_) => sleep(Duration::from_millis(10)).await,
                }
            }
        };
        timeout(PATIENCE, connected)
            .await
            .expect("the host listens")
    }

    async fn call(&self, request: Value) -> Value {
        let mut stream = self.connect().await;
        send(&mut stream, &request).await;
        receive(&mut stream).await.expect("an answer")
    }

    /// Stops the supervisor: nothing is left in its directory but what it was given.
    async fn stop(mut self) {
        self.supervisor.close_input();
        let ended = timeout(PATIENCE, self.supervisor.child.wait())
            .await
            .expect("the supervisor ends");
        assert!(ended.unwrap().success());
        let left: Vec<_> = self
            .directory
            .path()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert!(left.iter().all(|name| name == "plugins.sock"), "{left:?}");
    }
}

async fn send(stream: &mut BufReader<UnixStream>, request: &Value) {
    stream
        .write_all(format!("{request}\n").as_bytes())
        .await
        .unwrap();
}

async fn receive(stream: &mut BufReader<UnixStream>) -> Option<Value> {
    let mut line = String::new();
    let read = timeout(PATIENCE, stream.read_line(&mut line))
        .await
        .expect("an answer");
    // A host that is killed resets the connection.
    read.is_ok_and(|length| length > 0)
        .then(|| serde_json::from_str(&line).unwrap())
}

fn samples(count: usize) -> Value {
    let sample = |index: usize| {
        json!({"index": index, "group_index": 0, "prompt": "2+2?", "response": "4", "response_length": 1, "tokens": [1, 2],
            "label": "4", "status": "completed", "metadata": {"n": index}, "reward": null,
            "spec_info": {"spec_verify_ct": 0}, "prefix_cache_info": {"cached_tokens": 1, "later_field": 2}})
    };
    (0..count).map(sample).collect()
}

fn reward(function: &str, count: usize, batch: bool) -> Value {
    json!({"id": 1, "call": "reward", "path": format!("plugins_of_the_user.{function}"),
        "args": {"bonus": 0.5}, "samples": samples(count), "batch": batch})
}

#[tokio::test]
async fn rewards_of_every_form() {
    let host = Host::start();
    let cases = [
        ("asynchronous", false, json!([1.5, 1.5])),
        ("synchronous", false, json!([0, 1])),
        ("as_dict", false, json!([{"score": 1.0}, {"score": 1.0}])),
        ("as_bool", false, json!([1.0, 1.0])),
        ("numpy_like", false, json!([0.25, 0.25])),
        ("whole_batch", true, json!([0.0, 1.0])),
        ("numpy_like_batch", true, json!([0.25, 0.25])),
    ];
    for (function, batch, expected) in cases {
        let answer = host.call(reward(function, 2, batch)).await;
        assert_eq!(answer, json!({"id": 1, "result": expected}), "{function}");
    }
    host.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_function_is_named() {
    let host = Host::start();
    let cases = [
        ("raises", false, "KeyError", "boom"),
        ("raises_in_thread", false, "KeyError", "boom"),
        (
            "gives_none",
            false,
            "TypeError",
            "plugins_of_the_user.gives_none returned None for sample 0; expected a number or a dict",
        ),
        (
            "gives_text",
            false,
            "TypeError",
            "returned str 'good' for sample 0",
        ),
        (
            "gives_nan",
            false,
            "ValueError",
            "returned nan for sample 0",
        ),
        (
            "gives_dict_with_nan",
            false,
            "ValueError",
            "not JSON compliant",
        ),
        (
            "as_bool",
            true,
            "TypeError",
            "expected a list with 2 rewards",
        ),
        (
            "too_few",
            true,
            "ValueError",
            "returned 1 rewards for 2 samples",
        ),
        ("exits", false, "SystemExit", "3"),
        ("needs_more", false, "TypeError", "extra"),
        (
            "not_there",
            false,
            "ImportError",
            "has no function 'not_there'",
        ),
        ("constant", false, "TypeError", "is a int, not a function"),
    ];
    for (function, batch, kind, message) in cases {
        let answer = host.call(reward(function, 2, batch)).await;
        assert_eq!(answer["error"]["type"], kind, "{answer:#}");
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.contains(message), "{function}: {answer:#}");
        assert!(answer["error"]["traceback"].as_str().unwrap().len() <= 8 * 1024);
        assert!(answer.get("result").is_none());
    }
    let missing = json!({"id": 7, "call": "load", "path": "module_of_nobody.f"});
    let answer = host.call(missing).await;
    assert_eq!(answer["error"]["type"], "ImportError");
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("No module named 'module_of_nobody'")
    );
    host.stop().await;
}

#[tokio::test]
async fn load_filter_tool_and_what_is_not_there_yet() {
    let host = Host::start();
    let load = host
        .call(json!({"id": 1, "call": "load", "path": "plugins_of_the_user.asynchronous"}))
        .await;
    assert_eq!(
        load["result"],
        json!({"path": "plugins_of_the_user.asynchronous", "async": true, "parameters": ["args", "sample"], "keywords": true})
    );
    let filters = [
        ("keep_bool", json!({"keep": true, "reason": null})),
        ("keep_dict", json!({"keep": false, "reason": "too easy"})),
        (
            "keep_miles",
            json!({"keep": false, "reason": "zero_std_1.0"}),
        ),
    ];
    for (function, expected) in filters {
        let path = format!("plugins_of_the_user.{function}");
        let answer = host
            .call(
                json!({"id": 1, "call": "filter", "path": path, "args": {}, "samples": samples(2)}),
            )
            .await;
        assert_eq!(answer["result"], expected, "{answer:#}");
    }
    let tool = json!({"id": 1, "call": "tool", "path": "plugins_of_the_user.tool", "name": "add", "params": {"a": 1}});
    assert_eq!(host.call(tool).await["result"], "add {'a': 1}");
    let refused = [
        (
            json!({"id": 1, "call": "filter", "path": "plugins_of_the_user.as_text", "args": {}, "samples": []}),
            "TypeError",
        ),
        (
            json!({"id": 1, "call": "tool", "path": "plugins_of_the_user.as_bool", "name": "a", "params": {}}),
            "TypeError",
        ),
        (
            json!({"id": 1, "call": "tool", "path": "plugins_of_the_user.tool", "name": "a"}),
            "ValueError",
        ),
        (json!({"id": 1, "call": "generate"}), "NotSupported"),
        (json!({"id": 1, "call": "dance"}), "ValueError"),
        (
            json!({"id": 1, "call": "reward", "path": "plugins_of_the_user.as_bool", "samples": [{}]}),
            "KeyError",
        ),
    ];
    for (request, kind) in refused {
        assert_eq!(
            host.call(request.clone()).await["error"]["type"],
            kind,
            "{request}"
        );
    }
    host.stop().await;
}

#[tokio::test]
async fn calls_run_at_the_same_time_and_can_be_cancelled() {
    let host = Host::start();
    let mut stream = host.connect().await;
    for id in 1..=8 {
        let mut request = reward("meets_eight", 1, false);
        request["id"] = json!(id);
        send(&mut stream, &request).await;
    }
    let mut ids = Vec::new();
    for _ in 0..8 {
        let answer = receive(&mut stream).await.unwrap();
        assert_eq!(answer["result"], json!([8]), "{answer}");
        ids.push(answer["id"].as_i64().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8]);
    for function in ["hangs", "hangs_in_thread"] {
        let mut request = reward(function, 1, false);
        request["id"] = json!("a");
        send(&mut stream, &request).await;
        send(
            &mut stream,
            &json!({"id": "b", "call": "cancel", "target": "a"}),
        )
        .await;
        let mut answers = [
            receive(&mut stream).await.unwrap(),
            receive(&mut stream).await.unwrap(),
        ];
        answers.sort_by_key(|answer| answer["id"].to_string());
        assert_eq!(
            answers[0]["error"]["type"], "Cancelled",
            "{function}: {answers:?}"
        );
        assert_eq!(answers[1]["result"], true);
    }
    send(
        &mut stream,
        &json!({"id": "c", "call": "cancel", "target": "a"}),
    )
    .await;
    assert_eq!(receive(&mut stream).await.unwrap()["result"], false);
    host.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_calls() {
    let host = Host::start();
    let marker = host.directory.path().join("cancelled");
    let mut stream = host.connect().await;
    let mut request = reward("marks_its_cancellation", 1, false);
    request["args"]["marker"] = json!(marker);
    send(&mut stream, &request).await;
    let started = marker.with_extension("started");
    eventually("the call", || started.exists()).await;
    drop(stream);
    eventually("the cancellation", || marker.exists()).await;
    std::fs::remove_file(marker).unwrap();
    std::fs::remove_file(started).unwrap();
    host.stop().await;
}

#[tokio::test]
async fn what_is_no_request_closes_the_connection_and_nothing_else() {
    let host = Host::start();
    for line in ["not json\n", "[1]\n", "{\"call\": \"ping\"}\n"] {
        let mut stream = host.connect().await;
        stream.write_all(line.as_bytes()).await.unwrap();
        assert_eq!(receive(&mut stream).await, None, "{line}");
    }
    assert_eq!(
        host.call(json!({"id": 1, "call": "ping"})).await["result"],
        "pong"
    );
    host.stop().await;
}

/// Asked again when the host is killed meanwhile, as the driver does.
async fn pid_of(host: &Host) -> i32 {
    let answered = async {
        loop {
            let mut stream = host.connect().await;
            if stream
                .write_all(format!("{}\n", reward("own_pid", 1, false)).as_bytes())
                .await
                .is_ok()
                && let Some(answer) = receive(&mut stream).await
            {
                return i32::try_from(answer["result"][0].as_i64().unwrap()).unwrap();
            }
        }
    };
    timeout(PATIENCE, answered).await.expect("an answer")
}

#[tokio::test]
async fn a_host_that_dies_or_floods_is_there_again() {
    let host = Host::start();
    let first = pid_of(&host).await;
    kill(Pid::from_raw(first), Signal::SIGKILL).unwrap();
    eventually("the end of the first host", || !lives(&first.to_string())).await;
    let second = pid_of(&host).await;
    assert_ne!(first, second);
    let answer = host.call(reward("floods", 1, false)).await;
    assert_eq!(answer["result"], json!([1]));
    assert_eq!(pid_of(&host).await, second);
    host.stop().await;
}

/// The interpreter may be a launcher that asks where it is, as pyenv's does.
#[tokio::test]
async fn a_host_that_removed_its_directory_is_started_in_it_again() {
    let (home, code) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let work = home.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let module = "import os, shutil\nhere = os.getcwd()\ndef ruin(args, sample):\n    shutil.rmtree(here)\n    os._exit(7)\ndef own_pid(args, sample):\n    return os.getpid() if os.getcwd() == here else 0\n";
    std::fs::write(code.path().join("plugins_of_the_user.py"), module).unwrap();
    let host = Host::start_as(python(), Duration::from_mins(1), |role| {
        let Role::Plugins {
            socket,
            python,
            unresponsive_after,
            ..
        } = role
        else {
            unreachable!()
        };
        let code = code.path().to_owned();
        let role = Role::Plugins {
            socket,
            python,
            code,
            unresponsive_after,
        };
        start_at(&work, &role)
    });
    for _ in 0..2 {
        let mut stream = host.connect().await;
        send(&mut stream, &reward("ruin", 1, false)).await;
        assert_eq!(receive(&mut stream).await, None);
        assert!(pid_of(&host).await > 0);
        assert!(work.exists());
    }
    host.stop().await;
}

#[tokio::test]
async fn a_host_whose_event_loop_is_blocked_is_killed() {
    let host = Host::start_with(python(), Duration::from_secs(1));
    let first = pid_of(&host).await;
    let mut stream = host.connect().await;
    send(&mut stream, &reward("blocks_the_loop", 1, false)).await;
    assert_eq!(receive(&mut stream).await, None);
    assert_ne!(pid_of(&host).await, first);
    host.stop().await;
}

/// A plug-in's process that has left group, session, parent and environment behind.
async fn detached(host: &Host) -> String {
    let answer = host.call(reward("detaches", 1, false)).await;
    let pid = answer["result"][0].as_i64().expect("a process id");
    assert!(lives(&pid.to_string()), "{answer}");
    pid.to_string()
}

#[tokio::test]
async fn nothing_that_a_plug_in_started_outlives_its_host() {
    let host = Host::start();
    let first = detached(&host).await;
    kill(Pid::from_raw(pid_of(&host).await), Signal::SIGKILL).unwrap();
    eventually("the end of what it started", || !lives(&first)).await;
    let second = detached(&host).await;
    host.stop().await;
    assert!(!lives(&second));
}

#[tokio::test]
async fn nothing_that_a_plug_in_started_outlives_a_supervisor_or_guard_that_is_killed() {
    let mut host = Host::start_guarded();
    let started = detached(&host).await;
    let guard = host.supervisor.child.id().unwrap();
    let supervisor = children(guard)[0];
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    timeout(PATIENCE, host.supervisor.child.wait())
        .await
        .expect("the guard ends")
        .unwrap();
    assert!(!lives(&started));

    let host = Host::start_guarded();
    let started = detached(&host).await;
    let guard = host.supervisor.child.id().unwrap();
    let supervisor = children(guard)[0].to_string();
    kill(Pid::from_raw(guard.cast_signed()), Signal::SIGKILL).unwrap();
    eventually("the end of supervisor and plug-in", || {
        !lives(&started) && !lives(&supervisor)
    })
    .await;
}

/// What a supervisor that gives up says last.
async fn last_words(python: &str) -> String {
    let start = |role| start_heard(&role);
    let mut host = Host::start_as(python.into(), Duration::from_mins(1), start);
    let mut stderr = host.supervisor.child.stderr.take().unwrap();
    let mut said = String::new();
    timeout(PATIENCE, stderr.read_to_string(&mut said))
        .await
        .expect("it gives up")
        .unwrap();
    said
}

#[tokio::test]
async fn an_interpreter_that_is_none_is_an_error_at_once() {
    let missing = last_words("/no/such/python").await;
    assert!(missing.contains("Start {"), "{missing}");
    let useless = last_words("/bin/false").await;
    assert!(useless.contains("NeverReady {"), "{useless}");
}
