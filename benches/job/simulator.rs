//! One simulated engine with 10,000 requests in flight.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::process::Process;

const REQUESTS: usize = 10_000;
const PATIENCE: Duration = Duration::from_secs(300);

/// Starts them, waits until the engine says that it has them all, lets them end.
pub(crate) async fn measure() {
    let engine = Process::operator(&[
        "simulate-engine",
        "--exit-with-stdin",
        "--port",
        "0",
        "--max-running-requests",
        "10000",
        "--kv-cache-tokens",
        "20000000",
        "--decode-tokens-per-second",
        "400",
    ]);
    let url = engine.url("url");
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..REQUESTS {
        let url = url.clone();
        clients.spawn(async move {
            let body = json!({"text": format!("story {number}: {}", "once upon a time ".repeat(40)), "return_logprob": true,
                "sampling_params": {"max_new_tokens": 512, "ignore_eos": true}});
            let mut connection = Connection::open(&url).await;
            connection.ok("POST", "/generate", &[], Bytes::from(body.to_string())).await.len()
        });
    }
    let mut most = 0;
    while most < REQUESTS as u64 {
        assert!(
            started.elapsed() < PATIENCE,
            "only {most} requests in flight"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
        let loads = Connection::open(&url)
            .await
            .json("GET", "/v1/loads", &Value::Null)
            .await;
        let load = &loads["loads"][0];
        let count = |field: &str| load[field].as_u64().unwrap();
        most = most.max(count("num_running_reqs") + count("num_waiting_reqs"));
    }
    let in_flight = started.elapsed();
    let memory = engine.peak_mebibytes().unwrap();
    let bytes: usize = clients.join_all().await.iter().sum();
    println!(
        "simulated engine, {REQUESTS} requests in flight after {:.1} s: {memory:.0} MiB; all answered after {:.1} s with {} bytes each, \
         at most {:.0} MiB, CPU {:.1} s",
        in_flight.as_secs_f64(),
        started.elapsed().as_secs_f64(),
        bytes / REQUESTS,
        engine.peak_mebibytes().unwrap(),
        engine.cpu().total().as_secs_f64(),
    );
}
