//! `/generate` without a session, against `sglang-router` in front of the same engine, in turns.
//!
//! The peer runs twice: with `round_robin`, which costs it least, and with `cache_aware`, its default. Interpreter with the peer
//! installed: `BENCH_PEER_PYTHON`; without it only our router is measured.

use std::fmt::Write;

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::process::Process;
use crate::replies::token_id;
use crate::spread::Spread;
use crate::{peer, start_engine, start_router};

const CONNECTIONS: u32 = 16;
const ROUNDS: usize = 7;

/// A kind of request.
struct Load {
    name: &'static str,
    body: Bytes,
    requests_per_connection: u32,
}

struct Side {
    name: &'static str,
    process: Process,
    url: String,
    rate: Spread,
    ratio: Spread,
}

/// Measures small and large requests.
pub(crate) async fn measure() {
    let engine = start_engine();
    let engine_url = engine.url("url");
    let ours = start_router(std::slice::from_ref(&engine_url));
    let url = ours.url("control_url");
    let mut sides = vec![side("rollout-operator router", ours, url)];
    if let Ok(python) = std::env::var("BENCH_PEER_PYTHON") {
        for (name, policy) in [
            ("sglang-router 0.3.2, round_robin", "round_robin"),
            ("sglang-router 0.3.2, cache_aware", "cache_aware"),
        ] {
            let (process, url) = peer::start(&python, &engine_url, policy).await;
            sides.push(side(name, process, url));
        }
    } else {
        println!("pass-through: BENCH_PEER_PYTHON is not set, there is nothing to compare with");
    }
    for load in [small(), large()] {
        compare(&load, &mut sides).await;
    }
}

fn side(name: &'static str, process: Process, url: String) -> Side {
    Side {
        name,
        process,
        url,
        rate: Spread::default(),
        ratio: Spread::default(),
    }
}

fn small() -> Load {
    Load {
        name: "small requests",
        body: Bytes::from_static(
            br#"{"text":"The capital of France is","sampling_params":{"max_new_tokens":16,"temperature":1.0},"return_logprob":true}"#,
        ),
        requests_per_connection: 1_000,
    }
}

fn large() -> Load {
    let mut ids = String::from("1");
    for position in 0.. {
        if ids.len() >= 48_000 {
            break;
        }
        write!(ids, ",{}", token_id(position)).unwrap();
    }
    Load {
        name: "48 KB of prompt ids",
        body: Bytes::from(format!(
            r#"{{"input_ids":[{ids}],"sampling_params":{{"max_new_tokens":256,"temperature":1.0}},"return_logprob":true}}"#
        )),
        requests_per_connection: 400,
    }
}

async fn compare(load: &Load, sides: &mut [Side]) {
    for side in sides.iter_mut() {
        (side.rate, side.ratio) = (Spread::default(), Spread::default());
        run(&side.url, &load.body, load.requests_per_connection / 10).await;
    }
    for _ in 0..ROUNDS {
        let mut ours = None;
        for side in sides.iter_mut() {
            let before = side.process.cpu();
            run(&side.url, &load.body, load.requests_per_connection).await;
            let spent = (side.process.cpu() - before).total().as_secs_f64();
            let rate = f64::from(CONNECTIONS * load.requests_per_connection) / spent;
            side.rate.add(rate);
            side.ratio.add(*ours.get_or_insert(rate) / rate);
        }
    }
    for Side {
        name, rate, ratio, ..
    } in sides.iter()
    {
        println!(
            "pass-through, {} ({} bytes): {name}: {rate:.0} requests per CPU second; ours in relation to it: {ratio:.2}",
            load.name,
            load.body.len(),
        );
    }
}

async fn run(url: &str, body: &Bytes, requests: u32) {
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (url, body) = (url.to_owned(), body.clone());
        clients.spawn(async move {
            let mut connection = Connection::open(&url).await;
            for _ in 0..requests {
                connection.ok("POST", "/generate", &[], body.clone()).await;
            }
        });
    }
    clients.join_all().await;
}
