//! The sidecar beside simulated engines.

mod weights;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use sglang_simulator::{Config, Fault, FaultKind, Simulator};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::drain::Times;
use super::engine::Engine;
use super::keeper::Keeping;
use super::server::Sidecar;
use super::tokenizer::{FILES, ModelPlace, Place};

/// No test waits longer for anything.
const SOON: Duration = Duration::from_mins(1);

/// A simulated engine on a socket with its sidecar.
struct Pod {
    simulator: Simulator,
    url: String,
    sidecar: Arc<Sidecar>,
    over: CancellationToken,
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.over.cancel();
        self.simulator.kill();
    }
}

impl Pod {
    async fn start(times: Times, model: Option<&Path>) -> Self {
        let model = model.map_or(ModelPlace::Nowhere, |directory| {
            ModelPlace::Directory(directory.to_owned())
        });
        let files = Place {
            model,
            chat_template: None,
        };
        Self::with_files(times, files).await
    }

    async fn with_files(times: Times, files: Place) -> Self {
        let simulator = Simulator::new(Config::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let over = CancellationToken::new();
        let (serving, until) = (simulator.clone(), over.clone());
        TaskTracker::new().spawn(async move { serving.serve(listener, until).await });
        let engine = Engine::new(&url, None).unwrap();
        Self {
            simulator,
            sidecar: Sidecar::new(engine, times, files, nothing_kept()),
            url,
            over,
        }
    }

    async fn ask(&self, method: &str, path: &str) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let answer = Arc::clone(&self.sidecar).routes().oneshot(request);
        let answer = timeout(SOON, answer).await.unwrap().unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn engine(&self, path: &str, body: Value) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client.post(format!("{}{path}", self.url)).json(&body);
        let answer = answer.send().await.unwrap().error_for_status().unwrap();
        answer.json().await.unwrap_or_default()
    }

    /// A request that generates until it is aborted.
    async fn endless(&self) -> Value {
        let body = json!({
            "rid": "endless", "input_ids": [5],
            "sampling_params": {"max_new_tokens": 20_000, "ignore_eos": true},
        });
        self.engine("/generate", body).await
    }

    async fn running(&self, count: usize) {
        eventually(|| self.simulator.state().running == count).await;
    }

    /// Waits until the engine was asked for its load so often.
    async fn looked_at(&self, times: u64) {
        let looks = || {
            let paths = self.simulator.state().paths;
            paths.get("/v1/loads").map_or(0, |asked| asked.requests)
        };
        eventually(|| looks() >= times).await;
    }

    fn never_asked_for_its_health(&self) {
        let paths = self.simulator.state().paths;
        let asked: Vec<&String> = paths
            .keys()
            .filter(|path| path.starts_with("/health"))
            .collect();
        assert!(asked.is_empty(), "{asked:?}");
    }
}

fn nothing_kept() -> Keeping {
    Keeping {
        directory: None,
        peers: None,
        limit: SOON,
        patience: SOON,
    }
}

async fn eventually(holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, wait).await.unwrap();
}

fn times(limit: u64, settle_millis: u64) -> Times {
    Times {
        limit: Duration::from_secs(limit),
        settle: Duration::from_millis(settle_millis),
    }
}

#[tokio::test]
async fn the_state_is_the_engines() {
    let pod = Pod::start(times(30, 100), None).await;
    let (status, state) = pod.ask("GET", "/state").await;
    assert_eq!(status, StatusCode::OK);
    let expected = json!({"version": "default", "checkpoint": null, "required": null, "paused": false, "draining": false, "server_version": "0.5.23", "error": null, "trouble": null});
    assert_eq!(state, expected);
    // Many who ask at once cost the engine one question.
    for _ in 0..20 {
        pod.ask("GET", "/state").await;
    }
    assert!(pod.simulator.state().paths["/model_info"].requests < 20);
    pod.engine("/pause_generation", json!({"mode": "in_place"}))
        .await;
    let paused = async {
        while pod.ask("GET", "/state").await.1["paused"] != true {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, paused).await.unwrap();
    pod.never_asked_for_its_health();
}

#[tokio::test]
async fn an_engine_that_is_not_there_has_no_state_and_nothing_to_drain() {
    let pod = Pod::start(times(30, 100), None).await;
    pod.simulator.kill();
    let (status, state) = pod.ask("GET", "/state").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&state["version"], &state["paused"]),
        (&Value::Null, &Value::Null)
    );
    assert!(state["error"].as_str().unwrap().contains("cannot connect"));
    let (status, drained) = pod.ask("GET", "/drain").await;
    assert_eq!((status, &drained["end"]), (StatusCode::OK, &json!("gone")));
}

#[tokio::test]
async fn a_drain_waits_for_what_the_engine_has() {
    let pod = Pod::start(times(60, 100), None).await;
    let ends = async {
        pod.running(1).await;
        let drain = pod.ask("POST", "/drain");
        tokio::pin!(drain);
        tokio::select! {
            early = &mut drain => panic!("{early:?}"),
            () = pod.looked_at(3) => {}
        }
        assert_eq!(pod.ask("GET", "/state").await.1["draining"], true);
        pod.engine("/abort_request", json!({"rid": "endless"}))
            .await;
        drain.await
    };
    let (aborted, (status, drained)) = tokio::join!(pod.endless(), ends);
    assert_eq!(aborted["meta_info"]["finish_reason"]["type"], "abort");
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&drained["end"], &drained["requests"]),
        (&json!("idle"), &json!(0))
    );
    pod.never_asked_for_its_health();
}

#[tokio::test]
async fn a_drain_ends_in_time_and_says_what_is_left() {
    let pod = Pod::start(times(3, 100), None).await;
    let ends = async {
        pod.running(1).await;
        let first = pod.ask("GET", "/drain").await;
        // The second hook of the pod has no time of its own.
        let second = pod.ask("GET", "/drain").await;
        pod.engine("/abort_request", json!({"rid": "endless"}))
            .await;
        (first, second)
    };
    let (_, ((status, first), (_, second))) = tokio::join!(pod.endless(), ends);
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(first["end"], "timed_out");
    assert_eq!(first["requests"], 1);
    assert_eq!(second["end"], "timed_out");
}

#[tokio::test]
async fn requests_at_the_gate_of_a_paused_engine_are_waited_for() {
    let pod = Pod::start(times(60, 100), None).await;
    pod.engine("/pause_generation", json!({"mode": "in_place"}))
        .await;
    let request = json!({"input_ids": [5], "sampling_params": {"max_new_tokens": 2}});
    let ends = async {
        eventually(|| pod.simulator.state().gated == 1).await;
        let drain = pod.ask("GET", "/drain");
        tokio::pin!(drain);
        tokio::select! {
            early = &mut drain => panic!("{early:?}"),
            () = pod.looked_at(3) => {}
        }
        pod.engine("/continue_generation", json!({})).await;
        drain.await
    };
    let (answer, (status, drained)) = tokio::join!(pod.engine("/generate", request), ends);
    assert_eq!(answer["meta_info"]["completion_tokens"], 2);
    assert_eq!((status, &drained["end"]), (StatusCode::OK, &json!("idle")));
    pod.never_asked_for_its_health();
}

#[tokio::test]
async fn an_engine_that_does_not_say_is_waited_for_and_the_reason_is_told() {
    let pod = Pod::start(times(1, 100), None).await;
    pod.simulator
        .add_fault(Fault::new("/v1/loads", FaultKind::Status500));
    let (status, drained) = pod.ask("GET", "/drain").await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(drained["requests"], Value::Null);
    assert!(
        drained["error"].as_str().unwrap().contains("500"),
        "{drained}"
    );
}

#[tokio::test]
async fn a_tokenizers_files_are_served_and_nothing_else() {
    let model = tempfile::tempdir().unwrap();
    let blobs = model.path().join("blobs");
    let snapshot = model.path().join("snapshot");
    std::fs::create_dir(&blobs).unwrap();
    std::fs::create_dir(&snapshot).unwrap();
    let large = format!("{{\"vocab\": \"{}\"}}", "x".repeat(300_000));
    std::fs::write(blobs.join("abc"), &large).unwrap();
    // As the cache of a hub has it.
    std::os::unix::fs::symlink("../blobs/abc", snapshot.join("tokenizer.json")).unwrap();
    std::fs::write(snapshot.join("model.safetensors"), "weights").unwrap();
    std::fs::write(snapshot.join("config.json"), "{}").unwrap();
    std::fs::create_dir(snapshot.join("generation_config.json")).unwrap();
    let pod = Pod::start(times(1, 100), Some(&snapshot)).await;
    let (status, body) = pod.ask("GET", "/tokenizer/tokenizer.json").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["vocab"].as_str().unwrap().len(), 300_000);
    for (name, told) in [
        (
            "tokenizer_config.json",
            "the model has no tokenizer_config.json",
        ),
        (
            "generation_config.json",
            "the model has no generation_config.json",
        ),
        ("config.json", "config.json is no file of a tokenizer"),
        ("model.safetensors", "is no file of a tokenizer"),
        ("..%2fblobs%2fabc", "is no file of a tokenizer"),
        ("%2e%2e", "is no file of a tokenizer"),
        ("tokenizer.json%00", "is no file of a tokenizer"),
    ] {
        let (status, body) = pod.ask("GET", &format!("/tokenizer/{name}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{name}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains(told), "{message}");
    }
    for path in [
        "/tokenizer/../blobs/abc",
        "/tokenizer/",
        "/tokenizer//etc/passwd",
    ] {
        let (status, _) = pod.ask("GET", path).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
    let without = Pod::start(times(1, 100), None).await;
    let (status, body) = without.ask("GET", "/tokenizer/tokenizer.json").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let message = body["error"]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "this sidecar was started without --model-dir and --hub-cache"
    );
}

#[test]
fn what_is_served_is_what_drivers_ask_for() {
    assert_eq!(
        FILES.map(|(name, _)| name),
        rollout_driver::tokenizer_files::FILES
    );
}

#[tokio::test]
async fn what_the_engine_downloads_is_served_once_it_is_there_with_the_engines_own_template() {
    let cache = tempfile::tempdir().unwrap();
    let template = cache.path().join("own.jinja");
    std::fs::write(&template, "own").unwrap();
    let files = Place {
        model: ModelPlace::HubCache {
            cache: cache.path().to_owned(),
            model: "org/model".to_owned(),
            revision: "main".to_owned(),
        },
        chat_template: Some(template),
    };
    let pod = Pod::with_files(times(1, 100), files).await;
    let (status, body) = pod.ask("GET", "/tokenizer/tokenizer.json").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        body["error"]["message"],
        "the revision main of org/model was not downloaded yet"
    );
    // As huggingface_hub has it.
    let model = cache.path().join("models--org--model");
    let snapshot = model.join("snapshots/abc123");
    for directory in [&snapshot, &model.join("refs"), &model.join("blobs")] {
        std::fs::create_dir_all(directory).unwrap();
    }
    std::fs::write(model.join("refs/main"), "abc123").unwrap();
    std::fs::write(model.join("blobs/1"), "{}").unwrap();
    std::os::unix::fs::symlink("../../blobs/1", snapshot.join("tokenizer.json")).unwrap();
    std::fs::write(snapshot.join("chat_template.jinja"), "the model's").unwrap();
    let get = async |name: &str| {
        let request = Request::get(format!("/tokenizer/{name}")).body(Body::empty());
        let routes = Arc::clone(&pod.sidecar).routes();
        let answer = routes.oneshot(request.unwrap()).await.unwrap();
        let tag = answer.headers()["etag"].to_str().unwrap().to_owned();
        (tag, to_bytes(answer.into_body(), 1 << 20).await.unwrap())
    };
    let (tag, body) = get("tokenizer.json").await;
    assert_eq!(&body[..], b"{}");
    // printf '{}' | sha256sum
    assert_eq!(
        tag,
        "\"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\""
    );
    assert_eq!(&get("chat_template.jinja").await.1[..], b"own");
}
