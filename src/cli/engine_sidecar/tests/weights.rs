//! Checkpoints through the lives of engine and sidecar.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use serde_json::{Value, json};
use sglang_simulator::{Config, Simulator};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::super::keeper::Keeping;
use super::super::server::Sidecar;
use super::super::tokenizer::Place;
use super::{Engine, SOON, times};

/// An engine's process.
struct Process {
    simulator: Simulator,
    address: SocketAddr,
    over: CancellationToken,
    served: JoinSet<()>,
}

impl Process {
    async fn start(address: SocketAddr) -> Self {
        let bound = async {
            loop {
                if let Ok(listener) = TcpListener::bind(address).await {
                    return listener;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let listener = timeout(SOON, bound).await.unwrap();
        let address = listener.local_addr().unwrap();
        let simulator = Simulator::new(Config::default()).unwrap();
        let over = CancellationToken::new();
        let (serving, until) = (simulator.clone(), over.clone());
        let mut served = JoinSet::new();
        served.spawn(async move {
            serving.serve(listener, until).await.unwrap();
        });
        Self {
            simulator,
            address,
            over,
            served,
        }
    }

    async fn first() -> Self {
        Self::start(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Ends, and begins again at the same address.
    async fn again(mut self) -> Self {
        self.simulator.kill();
        self.over.cancel();
        self.served.abort_all();
        while self.served.join_next().await.is_some() {}
        Self::start(self.address).await
    }

    async fn update(&self, path: &str, version: &str) {
        let url = format!("http://{}/update_weights_from_disk", self.address);
        let body = json!({"model_path": path, "weight_version": version});
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client.post(url).json(&body).send().await.unwrap();
        answer.error_for_status().unwrap();
    }

    /// Path and version of what it has.
    async fn weights(&self) -> (String, String) {
        let url = format!("http://{}/model_info", self.address);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let info: Value = client.get(url).send().await.unwrap().json().await.unwrap();
        let text = |field: &str| info[field].as_str().unwrap().to_owned();
        (text("model_path"), text("weight_version"))
    }
}

/// A sidecar's process.
struct Beside {
    sidecar: Arc<Sidecar>,
    _watch: JoinSet<()>,
}

impl Beside {
    fn start(engine: &Process, directory: &Path, peers: Option<&SocketAddr>) -> Self {
        Self::patient(engine, directory, peers, SOON)
    }

    fn patient(
        engine: &Process,
        directory: &Path,
        peers: Option<&SocketAddr>,
        patience: Duration,
    ) -> Self {
        let url = format!("http://{}", engine.address);
        let keeping = Keeping {
            directory: Some(directory.to_owned()),
            peers: peers.map(SocketAddr::to_string),
            limit: SOON,
            patience,
        };
        let engine = Engine::new(&url, None).unwrap();
        let sidecar = Sidecar::new(engine, times(1, 100), Place::default(), keeping);
        let mut watch = JoinSet::new();
        let watched = Arc::clone(&sidecar);
        watch.spawn(async move { watched.watch().await });
        Self {
            sidecar,
            _watch: watch,
        }
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = Arc::clone(&self.sidecar).routes().oneshot(request);
        let answer = timeout(SOON, answer).await.unwrap().unwrap();
        let status = answer.status();
        let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn state(&self) -> Value {
        serde_json::from_str(&self.get("/state").await.1).unwrap()
    }

    /// As the kubelet asks an engine that begins.
    async fn starts(&self) {
        let starts = async {
            while self.get("/started").await.0 != StatusCode::OK {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, starts).await.unwrap();
    }

    async fn state_has(&self, holds: impl Fn(&Value) -> bool) {
        let has = async {
            while !holds(&self.state().await) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, has).await.unwrap();
    }

    async fn notes(&self, path: &str) {
        self.state_has(|state| state["checkpoint"]["path"] == path)
            .await;
    }

    /// Waits with its engine for a checkpoint: what it says to the kubelet.
    async fn waits(&self) -> String {
        let (status, words) = self.get("/started").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{words}");
        words
    }
}

fn pair(path: &str, version: &str) -> (String, String) {
    (path.to_owned(), version.to_owned())
}

#[tokio::test]
async fn an_engine_that_begins_again_has_its_checkpoint_before_it_has_started() {
    let home = tempfile::tempdir().unwrap();
    let engine = Process::first().await;
    let beside = Beside::start(&engine, home.path(), None);
    beside.starts().await;
    let launched = engine.weights().await;
    assert_eq!(beside.state().await["checkpoint"], Value::Null);
    engine.update("org/step-12", "12").await;
    beside.notes("org/step-12").await;

    let engine = engine.again().await;
    assert_eq!(engine.weights().await, launched);
    let words = beside.waits().await;
    assert_eq!(
        words,
        "the engine has begun again and loads its checkpoint org/step-12"
    );
    beside.starts().await;
    assert_eq!(engine.weights().await, pair("org/step-12", "12"));
    assert_eq!(beside.state().await["trouble"], Value::Null);

    // Killed with its engine.
    drop(beside);
    let engine = engine.again().await;
    let beside = Beside::start(&engine, home.path(), None);
    beside.waits().await;
    beside.starts().await;
    assert_eq!(engine.weights().await, pair("org/step-12", "12"));
}

#[tokio::test]
async fn a_checkpoint_that_is_gone_keeps_its_engine_from_work_and_is_told() {
    let home = tempfile::tempdir().unwrap();
    let checkpoints = tempfile::tempdir().unwrap();
    let step = checkpoints.path().join("step-12");
    std::fs::create_dir(&step).unwrap();
    let path = step.to_str().unwrap();
    let engine = Process::first().await;
    let beside = Beside::start(&engine, home.path(), None);
    beside.starts().await;
    engine.update(path, "12").await;
    beside.notes(path).await;
    std::fs::remove_dir(&step).unwrap();

    let engine = engine.again().await;
    beside.waits().await;
    let told = format!("the engine has begun again and cannot load its checkpoint {path}: ");
    beside
        .state_has(|state| {
            let trouble = state["trouble"].as_str().unwrap_or_default();
            trouble.starts_with(&told) && trouble.contains("Failed to get weights iterator")
        })
        .await;
    // It is not forgotten: the kubelet asks again, and so does the sidecar. What is told does not come and go with that.
    beside.waits().await;
    assert!(beside.state().await["trouble"].is_string());
    std::fs::create_dir(&step).unwrap();
    beside.starts().await;
    assert_eq!(engine.weights().await, pair(path, "12"));
}

#[tokio::test]
async fn what_somebody_loads_instead_opens_the_engine() {
    let home = tempfile::tempdir().unwrap();
    let engine = Process::first().await;
    let beside = Beside::start(&engine, home.path(), None);
    beside.starts().await;
    let (path, version) = engine.weights().await;
    let launch = json!({"path": path, "version": version});
    let memory = |path: &str| {
        let weights = json!({"path": path, "version": "12"});
        json!({"launch": launch, "checkpoint": {"weights": weights, "at": 1, "named": true}})
    };
    drop(beside);
    let file = home.path().join("weights.json");
    std::fs::write(file, memory("/no/such/step").to_string()).unwrap();
    let engine = engine.again().await;
    let beside = Beside::start(&engine, home.path(), None);
    beside.waits().await;
    beside.state_has(|state| state["trouble"].is_string()).await;
    engine.update("org/step-13", "13").await;
    beside.starts().await;
    assert_eq!(engine.weights().await, pair("org/step-13", "13"));
    beside.notes("org/step-13").await;
    assert_eq!(beside.state().await["trouble"], Value::Null);
}

#[tokio::test]
async fn an_engine_that_is_new_takes_the_checkpoint_of_its_peers() {
    let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = Process::first().await;
    let beside_old = Beside::start(&old, home.path(), None);
    beside_old.starts().await;
    old.update("org/step-12", "12").await;
    beside_old.notes("org/step-12").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Arc::clone(&beside_old.sidecar).routes();
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });

    let new = Process::first().await;
    let beside = Beside::start(&new, other.path(), Some(&address));
    beside.waits().await;
    beside.starts().await;
    assert_eq!(new.weights().await, pair("org/step-12", "12"));
    beside.notes("org/step-12").await;

    // One that does not answer is waited for.
    serving.abort_all();
    while serving.join_next().await.is_some() {}
    let third = tempfile::tempdir().unwrap();
    let alone = Process::first().await;
    let beside = Beside::start(&alone, third.path(), Some(&address));
    let words = beside.waits().await;
    assert!(words.contains("have not said yet"), "{words}");
    let listener = TcpListener::bind(address).await.unwrap();
    let routes = Arc::clone(&beside_old.sidecar).routes();
    serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    beside.starts().await;
    assert_eq!(alone.weights().await, pair("org/step-12", "12"));

    // But not for ever.
    serving.abort_all();
    while serving.join_next().await.is_some() {}
    let fourth = tempfile::tempdir().unwrap();
    let alone = Process::first().await;
    let launched = alone.weights().await;
    let impatient = Beside::patient(&alone, fourth.path(), Some(&address), Duration::ZERO);
    impatient.starts().await;
    assert_eq!(alone.weights().await, launched);
}

#[tokio::test]
async fn a_memory_that_cannot_be_read_is_no_obstacle() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("weights.json"), "{\"launch\": 1").unwrap();
    let engine = Process::first().await;
    let beside = Beside::start(&engine, home.path(), None);
    beside.starts().await;
    engine.update("org/step-12", "12").await;
    beside.notes("org/step-12").await;
}
