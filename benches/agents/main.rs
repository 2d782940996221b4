//! What launcher, shim and Python host add between the router's answer to a claim and the first line of the agent.
//!
//! `benches/run agents [SESSIONS_AT_ONCE] [ROUNDS]`. One pod holds as many claims open as there are sessions at once; each round offers that many sessions in one moment. The first
//! round warms up and is not counted. Everything runs on this machine, the router of the measurement included.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement that cannot go on stops"
)]

#[path = "../support/part.rs"]
mod part;
#[path = "../support/spread.rs"]
mod spread;

use std::{
    collections::HashMap,
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use parking_lot::Mutex;
use rollout_agent::{
    launcher::{self, LauncherConfig},
    shim::{self, Agent, Function, ShimConfig},
};
use serde_json::{Value, json};
use spread::Spread;
use tokio::{
    net::TcpListener,
    process::{Child, Command},
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

const AGENT: &str = "
import time

async def run(base_url, prompt, request_kwargs, metadata):
    return {'first_line': time.time_ns()}
";

struct Shared {
    offered: Semaphore,
    answered: Mutex<HashMap<String, u128>>,
    overheads: Mutex<Vec<f64>>,
    changed: Notify,
}

fn now() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos()
}

fn main() {
    part::run(async |part| match part {
        Some("launcher") => run_launcher().await,
        Some("shim") => run_shim().await,
        sessions => {
            let number = |text: &str| text.parse().unwrap();
            let rounds = part::arguments();
            measure(
                sessions.map_or(128, number),
                rounds.get(1).map_or(50, |text| number(text)),
            )
            .await;
        }
    });
}

async fn run_launcher() {
    let arguments = part::arguments();
    let mut config = LauncherConfig::new(&arguments[1], "job/0/1/token", &arguments[2]);
    config.concurrent = arguments[3].parse().unwrap();
    config.sessions_per_pod = 0;
    launcher::run(config, CancellationToken::new())
        .await
        .unwrap();
}

async fn run_shim() {
    let directory = PathBuf::from(&part::arguments()[1]);
    let function = Function {
        path: "bench_agent.run".to_owned(),
        python: "python3".into(),
        code: Some(directory.clone()),
        parameters: None,
    };
    let config = ShimConfig {
        directory,
        agent: Agent::Function(function),
        environment: shim::clean_environment(std::env::vars_os(), false, &[]),
        launcher_timeout: Duration::from_secs(10),
        grace_period: Duration::from_secs(10),
        echo: true,
    };
    shim::guard_this_process().unwrap();
    shim::run(config, CancellationToken::new()).await.unwrap();
}

fn start(arguments: &[&str]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn measure(sessions: usize, rounds: usize) {
    let directory = tempfile::TempDir::new().unwrap();
    std::fs::write(directory.path().join("bench_agent.py"), AGENT).unwrap();
    let shared = Arc::new(Shared {
        offered: Semaphore::new(0),
        answered: Mutex::default(),
        overheads: Mutex::default(),
        changed: Notify::new(),
    });
    let mut all = Spread::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new()
        .route("/agent/claim", post(claim))
        .route(
            "/agent/sessions/{id}/heartbeat",
            post(|| async { Json(json!({"state": "running"})) }),
        )
        .route("/agent/sessions/{id}/events", get(events))
        .route("/agent/sessions/{id}/result", post(result))
        .with_state(Arc::clone(&shared));
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, app).await.unwrap() });
    let shared_directory = directory.path().to_str().unwrap();
    let _launcher = start(&["launcher", &url, shared_directory, &sessions.to_string()]);
    let _shim = start(&["shim", shared_directory]);
    for round in 0..=rounds {
        // Every claim is open again before the next round.
        tokio::time::sleep(Duration::from_millis(500)).await;
        shared.offered.add_permits(sessions);
        loop {
            let changed = shared.changed.notified();
            if shared.overheads.lock().len() >= sessions {
                break;
            }
            changed.await;
        }
        let overheads = std::mem::take(&mut *shared.overheads.lock());
        shared.answered.lock().clear();
        if round > 0 {
            for value in overheads {
                all.add(value);
            }
        }
    }
    let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| all.percentile(percent));
    println!(
        "{sessions} sessions at once, {rounds} rounds: p50 {p50:.1} ms, p90 {p90:.1} ms, p99 {p99:.1} ms, max {max:.1} ms"
    );
}

async fn claim(State(shared): State<Arc<Shared>>, Json(body): Json<Value>) -> Response {
    let wait = Duration::from_secs_f64(body["wait_seconds"].as_f64().unwrap());
    let Ok(permit) = tokio::time::timeout(wait, shared.offered.acquire()).await else {
        return StatusCode::NO_CONTENT.into_response();
    };
    permit.unwrap().forget();
    let id = format!("{:032x}", rand::random::<u128>());
    let session = json!({"session_id": id, "base_url": format!("http://127.0.0.1:1/sessions/{id}"), "token": "t",
        "prompt": [{"role": "user", "content": "2+2?"}], "deadline_seconds": 60, "heartbeat_seconds": 10});
    shared.answered.lock().insert(id, now());
    Json(session).into_response()
}

async fn events() -> StatusCode {
    tokio::time::sleep(Duration::from_secs(20)).await;
    StatusCode::NO_CONTENT
}

async fn result(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Json(body): Json<Value>,
) -> Json<Value> {
    let first_line = u128::from(body["metadata"]["first_line"].as_u64().unwrap());
    let answered = shared.answered.lock()[&id];
    let overhead = Duration::from_nanos(u64::try_from(first_line - answered).unwrap());
    shared
        .overheads
        .lock()
        .push(overhead.as_secs_f64() * 1000.0);
    shared.changed.notify_one();
    Json(json!({}))
}
