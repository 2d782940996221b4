//! A fence of 1,000 requests in flight over eight simulated engines: half are turns of sessions, half have no session.
//!
//! Measured from the sending of `POST /fence`: when the last living engine had answered the abort of every request it had (the
//! router's own account), when the last client of a living engine has its answer, and when the fence is answered. Once with all engines alive, once with one that hangs (SIGSTOP), once with
//! one that was killed in the same moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::process::{Process, operator};
use crate::spread::Spread;
use crate::start_router;

const ENGINES: usize = 8;
const REQUESTS: u32 = 1_000;
const ROUNDS: usize = 7;

/// Everything has to be in flight by then.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy)]
enum Fault {
    None,
    Hangs,
    Killed,
}

/// Measures the fence with and without a dead engine.
pub(crate) async fn measure() {
    for (name, fault, rounds) in [
        ("all engines alive", Fault::None, ROUNDS),
        ("one engine hangs", Fault::Hangs, 3),
        ("one engine is killed", Fault::Killed, 3),
    ] {
        let mut figures = Figures::default();
        for _ in 0..rounds {
            round(fault, &mut figures).await;
        }
        let Figures {
            told,
            over,
            answered,
            aborted,
            unproven,
            left,
        } = figures;
        println!(
            "fence of {REQUESTS} requests over {ENGINES} engines, {name}: all living engines told after {told:.0} ms, their requests over after {over:.0} ms, \
             fence answered after {answered:.0} ms; aborted {aborted:.0}, unproven {unproven:.0}, left {left:.0}"
        );
    }
}

#[derive(Debug, Default)]
struct Figures {
    told: Spread,
    over: Spread,
    answered: Spread,
    aborted: Spread,
    unproven: Spread,
    left: Spread,
}

fn start_engine() -> Process {
    Process::announcing(operator(&[
        "simulate-engine",
        "--exit-with-stdin",
        "--port",
        "0",
        "--decode-tokens-per-second",
        "20",
    ]))
}

async fn round(fault: Fault, figures: &mut Figures) {
    let engines: Vec<Process> = (0..ENGINES).map(|_| start_engine()).collect();
    let urls: Vec<String> = engines.iter().map(|engine| engine.url("url")).collect();
    let router = start_router(&urls);
    let url = router.url("control_url");
    let mut control = Connection::open(&url).await;
    let (ended, mut ends) = mpsc::unbounded_channel();
    let mut clients = JoinSet::new();
    for number in 0..REQUESTS {
        clients.spawn(client(url.clone(), number, ended.clone()));
    }
    all_running(&urls).await;
    let pid = Pid::from_raw(engines[0].pid().try_into().unwrap());
    match fault {
        Fault::None => {}
        Fault::Hangs => kill(pid, Signal::SIGSTOP).unwrap(),
        Fault::Killed => kill(pid, Signal::SIGKILL).unwrap(),
    }
    let started = Instant::now();
    let fence = control
        .json(
            "POST",
            "/fence",
            &json!({"job": "bench", "deadline_seconds": 5}),
        )
        .await;
    let answered = started.elapsed();
    let count = |field: &str| -> u32 {
        let engines = fence["engines"].as_array().unwrap();
        let counts = engines.iter().map(|engine| engine[field].as_u64().unwrap());
        u32::try_from(counts.sum::<u64>()).unwrap()
    };
    let [aborted, unproven, left] = ["aborted", "unproven", "left"].map(count);
    // Requests at an engine that hangs end when they like; of all others the last word is here.
    let expected = match fault {
        Fault::Hangs => aborted,
        Fault::None | Fault::Killed => REQUESTS,
    };
    let mut last = started;
    for _ in 0..expected {
        let end = tokio::time::timeout(PATIENCE, ends.recv()).await.unwrap();
        last = last.max(end.unwrap());
    }
    figures
        .told
        .add(f64::from(last_told(&fence, &urls[0], fault)));
    figures.over.add(1e3 * (last - started).as_secs_f64());
    figures.answered.add(1e3 * answered.as_secs_f64());
    figures.aborted.add(f64::from(aborted));
    figures.unproven.add(f64::from(unproven));
    figures.left.add(f64::from(left));
}

/// When the last engine had been told, in ms; the first is left out where it is the broken one.
fn last_told(fence: &Value, first: &str, fault: Fault) -> u32 {
    let engines = fence["engines"].as_array().unwrap();
    let living = engines
        .iter()
        .filter(|engine| matches!(fault, Fault::None) || engine["url"] != first);
    let told = living.map(|engine| engine["told_millis"].as_u64().unwrap());
    u32::try_from(told.max().unwrap()).unwrap()
}

/// One request that would take minutes; says when it was over.
async fn client(url: String, number: u32, ended: mpsc::UnboundedSender<Instant>) {
    let mut connection = Connection::open(&url).await;
    let outcome = if number.is_multiple_of(2) {
        let session = connection
            .json("POST", "/sessions", &json!({"job": "bench"}))
            .await;
        let path = format!(
            "/sessions/{}/v1/chat/completions",
            session["session_id"].as_str().unwrap()
        );
        let body = json!({"messages": [{"role": "user", "content": format!("count to {number}")}], "max_tokens": 8_000,
            "ignore_eos": true});
        connection
            .call("POST", &path, &[], Bytes::from(body.to_string()))
            .await
    } else {
        let body = json!({"text": format!("count to {number}"), "sampling_params": {"max_new_tokens": 8_000, "ignore_eos": true}});
        let headers = [("x-rollout-job", "bench")];
        connection
            .call("POST", "/generate", &headers, Bytes::from(body.to_string()))
            .await
    };
    drop(outcome);
    let _ = ended.send(Instant::now());
}

/// Waits until the engines say that everything runs.
async fn all_running(urls: &[String]) {
    let deadline = Instant::now() + PATIENCE;
    let urls: Arc<[String]> = urls.into();
    loop {
        let mut running = 0;
        for url in urls.iter() {
            let loads: Value = Connection::open(url)
                .await
                .json("GET", "/v1/loads", &Value::Null)
                .await;
            running += loads["loads"][0]["num_running_reqs"].as_u64().unwrap();
        }
        if running == u64::from(REQUESTS) {
            return;
        }
        assert!(Instant::now() < deadline, "only {running} requests run");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
