//! One simulated engine, as a process, with 10,000 requests in flight.
//!
//! `benches/run simulator [answered|aborted]`. CPU time and memory are the engine's own, from `/proc`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a measurement that cannot go on stops"
)]

#[path = "../support/calls.rs"]
mod calls;
#[path = "../support/client.rs"]
mod client;
#[path = "../support/memory.rs"]
mod memory;
#[path = "../support/part.rs"]
mod part;
#[path = "../support/process.rs"]
mod process;

use std::time::{Duration, Instant};

use bytes::Bytes;
use client::Connection;
use process::{Process, operator};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const REQUESTS: u32 = 10_000;
/// Requests that start at once; the next ones follow when these are in flight. An engine closes a connection that says nothing for 5 s, which a
/// busy machine can take for 10,000 at once.
const WAVE: u32 = 500;

const LOOK: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_mins(5);

fn main() {
    part::run(async |part| match part {
        Some("answered") => answered().await,
        Some("aborted") => aborted().await,
        None => {
            answered().await;
            aborted().await;
        }
        Some(other) => panic!("no part {other}: answered or aborted"),
    });
}

/// Requests in flight at an engine, each with its client.
struct Filled {
    engine: Process,
    url: String,
    started: Instant,
    clients: JoinSet<usize>,
}

/// Starts an engine and the requests, and waits until the engine says that it has them all.
async fn fill(body: impl Fn(u32) -> Value) -> Filled {
    let engine = Process::announcing(operator(&[
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
    ]));
    let url = engine.url("url");
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for wave in 1..=REQUESTS / WAVE {
        for number in (wave - 1) * WAVE..wave * WAVE {
            clients.spawn(ask(url.clone(), Bytes::from(body(number).to_string())));
        }
        while requests_at(&url).await < u64::from(wave * WAVE) {
            assert!(
                started.elapsed() < PATIENCE,
                "wave {wave} is not in flight, or requests have ended"
            );
            tokio::time::sleep(LOOK).await;
        }
    }
    let memory = engine.peak_mebibytes().unwrap();
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "simulated engine, {REQUESTS} requests in flight after {seconds:.1} s: {memory:.0} MiB"
    );
    Filled {
        engine,
        url,
        started,
        clients,
    }
}

impl Filled {
    /// Waits for all answers.
    async fn end(self, how: &str) {
        let sizes = self.clients.join_all().await;
        let bytes = sizes.iter().sum::<usize>() / sizes.len();
        println!(
            "  all {how} after {:.1} s with {bytes} bytes each, at most {:.0} MiB, CPU {:.1} s",
            self.started.elapsed().as_secs_f64(),
            self.engine.peak_mebibytes().unwrap(),
            self.engine.cpu().total().as_secs_f64(),
        );
    }
}

/// Long replies to texts; every one is waited for.
async fn answered() {
    let filled = fill(|number| {
        let prompt = format!("story {number}: {}", "once upon a time ".repeat(40));
        json!({"text": prompt, "return_logprob": true, "sampling_params": {"max_new_tokens": 512, "ignore_eos": true}})
    });
    filled.await.end("answered").await;
}

/// Prompts of 1,000 token ids, and an abort of everything.
async fn aborted() {
    let filled = fill(|number| {
        let ids: Vec<u32> = (0..1000)
            .map(|index| (number * 7 + index * 13) % 1000)
            .collect();
        json!({"input_ids": ids, "return_logprob": true, "sampling_params": {"max_new_tokens": 2000, "ignore_eos": true}})
    });
    let filled = filled.await;
    let mut control = Connection::open(&filled.url).await;
    let everything = json!({"abort_all": true});
    control.json("POST", "/abort_request", &everything).await;
    filled.end("aborted").await;
}

/// One request; answers the size of the reply.
async fn ask(url: String, body: Bytes) -> usize {
    let mut connection = Connection::open(&url).await;
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
