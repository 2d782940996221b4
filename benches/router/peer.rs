//! `sglang-router` from `PyPI`, the peer of the pass-through.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::TcpListener;

use crate::client::Connection;
use crate::process::{Process, command};

/// How long it may take until it serves.
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts it in front of one engine with a routing policy; it says nothing of its own, so we ask until it generates.
pub(crate) async fn start(python: &str, engine: &str, policy: &str) -> (Process, String) {
    let [port, metrics] = [free_port().await, free_port().await];
    let arguments = [
        "-m",
        "sglang_router.launch_router",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--prometheus-port",
        &metrics,
        "--worker-urls",
        engine,
        "--policy",
        policy,
        "--log-level",
        "error",
    ];
    let process = Process::silent(command(Path::new(python), &arguments));
    let url = format!("http://127.0.0.1:{port}");
    let deadline = Instant::now() + PATIENCE;
    let body = Bytes::from_static(br#"{"text":"hello","sampling_params":{"max_new_tokens":1}}"#);
    while !generates(&url, &body).await {
        assert!(Instant::now() < deadline, "sglang-router does not serve");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    (process, url)
}

async fn generates(url: &str, body: &Bytes) -> bool {
    let address = url.trim_start_matches("http://");
    if tokio::net::TcpStream::connect(address).await.is_err() {
        return false;
    }
    let mut connection = Connection::open(url).await;
    let answer = connection
        .call("POST", "/generate", &[], body.clone())
        .await;
    answer.is_ok_and(|(status, _)| status.is_success())
}

async fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port().to_string()
}
