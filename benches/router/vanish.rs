//! Clients that vanish: from the moment in which a client's connection is closed until its engine has the slot free, by the engine's own
//! word. One at a time: a turn that runs, a turn that is streamed, and one that waits behind as many as the engine takes.
//!
//! The engine decodes 200 tokens per second and ends an aborted request with its next step, so up to 5 ms of the figure are its own.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::Connection;
use crate::process::{Process, operator};
use crate::spread::Spread;
use crate::start_router;

const SLOTS: u64 = 2;
const ROUNDS: usize = 50;
const PATIENCE: Duration = Duration::from_mins(1);

/// Measures all three.
pub(crate) async fn measure() {
    let engine = Process::announcing(operator(&[
        "simulate-engine",
        "--exit-with-stdin",
        "--port",
        "0",
        "--decode-tokens-per-second",
        "200",
        "--max-running-requests",
        &SLOTS.to_string(),
    ]));
    let url = engine.url("url");
    let router = start_router(std::slice::from_ref(&url));
    let (agents, control) = (router.url("agents_url"), router.url("control_url"));
    let bed = Bed {
        agents,
        control,
        engine: url,
    };
    for (name, stream, others) in [
        ("that runs", false, 0),
        ("that is streamed", true, 0),
        ("that waits in the engine's queue", false, SLOTS),
    ] {
        let mut freed = Spread::default();
        for _ in 0..ROUNDS {
            freed.add(1e3 * bed.round(stream, others).await.as_secs_f64());
        }
        println!(
            "client of a turn {name} vanishes: slot free after {freed:.1} ms, 95 % within {:.1} ms",
            freed.percentile(95)
        );
    }
}

struct Bed {
    agents: String,
    control: String,
    engine: String,
}

impl Bed {
    async fn round(&self, stream: bool, others: u64) -> Duration {
        let mut before = Vec::new();
        for count in 1..=others {
            before.push(self.turn(stream).await);
            self.until(|running, _| running == count).await;
        }
        let client = self.turn(stream).await;
        let load = (others.max(1), u64::from(others > 0));
        self.until(|running, waiting| (running, waiting) == load)
            .await;
        let closed = Instant::now();
        drop(client);
        self.until(|running, waiting| (running, waiting) == (others, 0))
            .await;
        let freed = closed.elapsed();
        drop(before);
        self.until(|running, waiting| (running, waiting) == (0, 0))
            .await;
        freed
    }

    /// A turn that would take minutes; it lasts as long as what is answered here.
    async fn turn(&self, stream: bool) -> tokio::task::JoinSet<()> {
        let mut control = Connection::open(&self.control).await;
        let session = control
            .json("POST", "/sessions", &json!({"job": "bench"}))
            .await;
        let path = format!(
            "/sessions/{}/v1/chat/completions",
            session["session_id"].as_str().unwrap()
        );
        let body = json!({"messages": [{"role": "user", "content": "count"}], "max_tokens": 8_000, "ignore_eos": true, "stream": stream});
        let mut connection = Connection::open(&self.agents).await;
        let mut client = tokio::task::JoinSet::new();
        client.spawn(async move {
            drop(
                connection
                    .call("POST", &path, &[], Bytes::from(body.to_string()))
                    .await,
            );
        });
        client
    }

    async fn until(&self, holds: impl Fn(u64, u64) -> bool) {
        let mut engine = Connection::open(&self.engine).await;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let state: Value = engine.json("GET", "/simulator/state", &Value::Null).await;
            let count = |field: &str| state[field].as_u64().unwrap();
            if holds(count("running"), count("waiting")) {
                return;
            }
            assert!(Instant::now() < deadline, "the engine has {state}");
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    }
}
