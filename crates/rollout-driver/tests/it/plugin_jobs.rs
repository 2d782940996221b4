//! Jobs with rewards and filters of the user, answered by a host in the test's own process.

use std::sync::Arc;

use parking_lot::Mutex;
use rollout_engine::Reason;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::rig::{Job, Pool, SUMS, engine};

#[tokio::test]
async fn a_plugin_decides_about_groups_and_one_that_raises_drops_them() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"batchSize": 2, "filter": {"type": "Plugin", "plugin": "hooks.keep"}}}),
    );
    let host = Host::start(&mut job, |call| match call {
        0 => json!({"error": {"type": "ValueError", "message": "no", "traceback": "..."}}),
        1 => json!({"result": {"keep": false, "reason": "too_easy"}}),
        2 => json!({"result": "yes"}),
        _ => json!({"result": {"keep": true, "reason": null}}),
    });
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    let filtered = &job.manifest().steps[0].ledger.filtered;
    assert_eq!((filtered["filter_error"], filtered["too_easy"]), (2, 1));
    let request = host.requests.lock()[0].clone();
    assert_eq!(request["call"], "filter");
    assert_eq!(request["path"], "hooks.keep");
    assert_eq!(request["args"]["n_samples_per_prompt"], 2);
    assert_eq!(request["samples"].as_array().unwrap().len(), 2);
    pool.stop().await;
}

fn raised(kind: &str, message: &str) -> Value {
    json!({"error": {"type": kind, "message": message, "traceback": "..."}})
}

fn scored_by_plugin(pool: &Pool) -> Job {
    Job::new(
        &pool.control_url,
        &json!({
            "reward": {"type": "Plugin", "plugin": {"path": "rewards.score"}},
            "rollout": {"batchSize": 4, "errorBudget": {"retriesPerGroup": 3}},
        }),
    )
}

#[tokio::test]
async fn a_reward_function_that_cannot_be_called_is_not_tried_again_and_again() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    for kind in [
        "ImportError",
        "ModuleNotFoundError",
        "TypeError",
        "NotSupported",
    ] {
        let mut job = scored_by_plugin(&pool);
        let message = "score() takes 1 positional argument but 2 were given";
        let host = Host::start(&mut job, move |_| raised(kind, message));
        let result = job.run().await.unwrap();
        assert_eq!(result.reason, Reason::ErrorBudgetExceeded, "{kind}");
        let expected =
            format!("the reward function cannot be used: rewards.score: {kind}: {message}");
        assert_eq!(result.message, expected);
        let entry = &job.manifest().steps[0];
        assert!(entry.ledger.failed["reward_unusable"] >= 3, "{kind}");
        assert!(
            !entry.ledger.recycled.contains_key("reward_failed"),
            "{kind}"
        );
        // What was in flight when it was noticed may have been scored, too.
        let calls = host.requests.lock().len();
        assert!(calls <= 16, "{kind}: {calls} calls");
    }
    pool.stop().await;
}

#[tokio::test]
async fn a_reward_that_fails_now_and_then_is_retried() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = scored_by_plugin(&pool);
    let _host = Host::start(&mut job, |call| match call {
        0 => raised("ValueError", "no such label"),
        1 => raised("TypeError", "unsupported operand"),
        _ => json!({"result": [1.0]}),
    });
    let result = job.run().await.unwrap();
    assert!(result.success, "{}", job.last_word());
    pool.stop().await;
}

#[tokio::test]
async fn a_filter_that_cannot_be_imported_is_known_at_the_start() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"filter": {"type": "Plugin", "plugin": "hooks.keep"}}}),
    );
    let missing = raised("ImportError", "no module named hooks");
    let host = Host::loading(&mut job, missing, |_| json!({"result": true}));
    let error = job.run().await.unwrap_err().to_string();
    assert_eq!(
        error,
        "configuration: spec.rollout.filter: hooks.keep: ImportError: no module named hooks"
    );
    assert!(host.requests.lock().is_empty(), "nothing was generated");
    assert_eq!(job.last_word()["result"]["reason"], "ValidationFailed");
    pool.stop().await;
}

/// The host may be about to be started again.
#[tokio::test]
async fn a_plug_in_host_that_does_not_answer_decides_nothing() {
    let pool = Pool::start(vec![engine(&SUMS)]).await;
    let mut job = Job::new(
        &pool.control_url,
        &json!({"rollout": {"filter": {"type": "Plugin", "plugin": "hooks.keep"}}}),
    );
    job.config["plugin_socket"] = json!(job.directory.path().join("plugins.sock"));
    job.config["timeouts"]["filter_seconds"] = json!(0.1);
    job.run().await.unwrap_err();
    assert_eq!(job.last_word()["result"]["reason"], "crashed");
    pool.stop().await;
}

/// A plug-in host that answers by the number of the call; functions can be loaded, unless it says otherwise.
pub(crate) struct Host {
    pub(crate) requests: Arc<Mutex<Vec<Value>>>,
    _tasks: JoinSet<()>,
}

impl Host {
    pub(crate) fn start(
        job: &mut Job,
        answer: impl Fn(usize) -> Value + Send + Sync + 'static,
    ) -> Self {
        Self::loading(job, json!({"result": {}}), answer)
    }

    /// `loaded` is the answer to every `load`.
    pub(crate) fn loading(
        job: &mut Job,
        loaded: Value,
        answer: impl Fn(usize) -> Value + Send + Sync + 'static,
    ) -> Self {
        let socket = job.directory.path().join("plugins.sock");
        job.config["plugin_socket"] = json!(socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                let loaded = loaded.clone();
                connections.spawn(async move {
                    let (read, mut write) = stream.into_split();
                    let mut lines = BufReader::new(read).lines();
                    while let Ok(Some(line)) = lines.next_line().await {
                        let request: Value = serde_json::from_str(&line).unwrap();
                        let mut reply = if request["call"] == "load" {
                            loaded.clone()
                        } else {
                            let mut seen = seen.lock();
                            seen.push(request.clone());
                            answer(seen.len() - 1)
                        };
                        reply["id"] = request["id"].clone();
                        write.write_all(format!("{reply}\n").as_bytes()).await.ok();
                    }
                });
            }
        });
        Self {
            requests,
            _tasks: tasks,
        }
    }
}
