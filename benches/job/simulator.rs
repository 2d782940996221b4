//! One simulated engine with 10,000 requests in flight.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::process::Process;

const REQUESTS: u32 = 10_000;
/// Requests that start at once; the next ones follow when these are in flight. An engine closes a connection that says nothing for 5 s, which a
/// busy machine can take for 10,000 at once.
const WAVE: u32 = 500;

const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_mins(5);

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
        "--prefill-tokens-per-second",
        "1000000",
        "--decode-tokens-per-second",
        "10",
        "--decode-slowdown-percent",
        "0",
    ]);
    let url = engine.url("url");
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for wave in 1..=REQUESTS / WAVE {
        for number in (wave - 1) * WAVE..wave * WAVE {
            clients.spawn(story(url.clone(), number));
        }
        while requests_at(&url).await < u64::from(wave * WAVE) {
            assert!(
                started.elapsed() < PATIENCE,
                "wave {wave} is not in flight, or requests have ended"
            );
            tokio::time::sleep(LOOK).await;
        }
    }
    let in_flight = started.elapsed();
    let memory = engine.peak_mebibytes().unwrap();
    let sizes = clients.join_all().await;
    let bytes = sizes.iter().sum::<usize>() / sizes.len();
    println!(
        "simulated engine, {REQUESTS} requests in flight after {:.1} s: {memory:.0} MiB; all answered after {:.1} s with {} bytes each, \
         at most {:.0} MiB, CPU {:.1} s",
        in_flight.as_secs_f64(),
        started.elapsed().as_secs_f64(),
        bytes,
        engine.peak_mebibytes().unwrap(),
        engine.cpu().total().as_secs_f64(),
    );
}

/// A long request; answers the size of the reply.
async fn story(url: String, number: u32) -> usize {
    let prompt = format!("story {number}: {}", "once upon a time ".repeat(40));
    let body = json!({"text": prompt, "return_logprob": true, "sampling_params": {"max_new_tokens": 512, "ignore_eos": true}});
    let mut connection = Connection::open(&url).await;
    let body = Bytes::from(body.to_string());
    connection.ok("POST", "/generate", &[], body).await.len()
}

/// Running and waiting, as the engine says.
async fn requests_at(url: &str) -> u64 {
    let mut connection = Connection::open(url).await;
    let loads = connection.json("GET", "/v1/loads", &Value::Null).await;
    let load = &loads["loads"][0];
    let count = |field: &str| load[field].as_u64().unwrap();
    count("num_running_reqs") + count("num_waiting_reqs")
}
