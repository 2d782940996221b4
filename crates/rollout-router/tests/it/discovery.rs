//! Engines that are found by name: they come, they leave, and no request is lost.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rollout_router::{Config, Resolver};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Bed, JOB, engine_config, eventually, in_time, slow_engine_config, user};

const NAME: &str = "engines.rl.svc:30000";

/// What the name server says.
#[derive(Clone)]
enum Word {
    Addresses(Vec<SocketAddr>),
    Error,
    Nothing,
}

/// A name server that says what it is told to.
#[derive(Clone)]
struct Names {
    word: Arc<Mutex<Word>>,
    asked: Arc<AtomicU64>,
}

impl Names {
    fn new() -> Self {
        Self {
            word: Arc::new(Mutex::new(Word::Addresses(Vec::new()))),
            asked: Arc::default(),
        }
    }

    fn resolver(&self) -> Resolver {
        let names = self.clone();
        Resolver::new(move |service| {
            assert_eq!(service.to_string(), NAME);
            names.asked.fetch_add(1, Ordering::SeqCst);
            let word = names.word.lock().clone();
            async move {
                match word {
                    Word::Addresses(addresses) => Ok(addresses),
                    Word::Error => Err(io::Error::other("name server failure")),
                    Word::Nothing => std::future::pending().await,
                }
            }
        })
    }

    /// Says it, and waits until the router has heard.
    async fn say(&self, word: Word) {
        *self.word.lock() = word;
        let asked = self.asked.load(Ordering::SeqCst);
        // The first lookup from now on may have begun before.
        eventually("the next lookups", || {
            self.asked.load(Ordering::SeqCst) >= asked + 3
        })
        .await;
    }

    async fn list(&self, bed: &Bed, indices: &[usize]) {
        let addresses = indices.iter().map(|index| bed.engines[*index].address());
        self.say(Word::Addresses(addresses.collect())).await;
    }
}

async fn found_by_name(engines: Vec<sglang_simulator::Config>) -> (Bed, Names) {
    let names = Names::new();
    let resolver = names.resolver();
    let bed = Bed::untold(engines, |config: &mut Config, _| {
        config.engine_service = Some(NAME.parse().unwrap());
        config.resolver = resolver;
        config.times.lookup = Duration::from_millis(2);
        config.times.probe = Duration::from_millis(5);
    })
    .await;
    (bed, names)
}

fn hello() -> Value {
    json!({"messages": [user("hi")], "max_tokens": 3, "ignore_eos": true})
}

fn requests(bed: &Bed, index: usize) -> u64 {
    let paths = bed.engines[index].simulator.state().paths;
    let of = |path: &str| paths.get(path).map_or(0, |counts| counts.requests);
    of("/v1/chat/completions") + of("/generate")
}

async fn engines(bed: &Bed) -> Vec<(String, bool)> {
    let status = bed.control().get("/status").await.ok();
    let engines = status["engines"].as_array().unwrap().iter();
    engines
        .map(|engine| {
            let url = engine["url"].as_str().unwrap().to_owned();
            (url, engine["draining"].as_bool().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn an_engine_that_appears_gets_work() {
    let (bed, names) = found_by_name(vec![engine_config(); 2]).await;
    let id = bed.session(json!({"job": JOB})).await;
    names.list(&bed, &[]).await;
    let early = bed.chat(&id, hello()).await;
    assert_eq!(early.status, 503);
    assert_eq!(early.headers["x-should-retry"], "true");
    assert!(
        early
            .error()
            .contains("engines.rl.svc:30000 has no address")
    );
    let ready = bed.control().get("/ready").await;
    assert_eq!(ready.status, 503);
    let missing = json!(["no engine is known: engines.rl.svc:30000 has no address"]);
    assert_eq!(ready.json()["missing"], missing);

    names.list(&bed, &[0]).await;
    bed.chat(&id, hello()).await.ok();
    assert_eq!(requests(&bed, 0), 1);
    let ready = bed.control().get("/ready").await.ok();
    assert_eq!(ready, json!({"ready": true, "missing": [], "warnings": []}));
    names.list(&bed, &[0, 1]).await;
    for _ in 0..2 {
        let other = bed.session(json!({"job": JOB})).await;
        bed.chat(&other, hello()).await.ok();
    }
    assert!(requests(&bed, 1) > 0);
    // Probed like any other.
    eventually("a probe of the second engine", || {
        bed.engines[1].simulator.state().paths.contains_key("/ping")
    })
    .await;
}

#[tokio::test]
async fn an_engine_that_leaves_ends_its_work_and_gets_no_more() {
    let (bed, names) = found_by_name(vec![slow_engine_config(); 2]).await;
    names.list(&bed, &[0]).await;
    bed.engines[0].pause().await;
    let id = bed.session(json!({"job": JOB})).await;
    let turn = bed.chat(&id, hello());
    let generate = json!({"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 2}});
    let control = bed.control();
    let pass = control.post("/generate", generate.clone());
    let leaves = async {
        let gated = || bed.engines[0].simulator.state().gated == 2;
        eventually("both requests wait at the gate", gated).await;
        names.list(&bed, &[1]).await;
        let left = vec![
            (bed.engines[0].url.clone(), true),
            (bed.engines[1].url.clone(), false),
        ];
        assert_eq!(engines(&bed).await, left);
        for _ in 0..3 {
            let other = bed.session(json!({"job": JOB})).await;
            bed.chat(&other, hello()).await.ok();
            control.post("/generate", generate.clone()).await.ok();
        }
        assert_eq!((requests(&bed, 0), requests(&bed, 1)), (2, 6));
        let metrics = bed.control().get("/metrics").await;
        let draining = format!(
            "rollout_router_engine_draining{{engine=\"{}\"}} 1",
            bed.engines[0].url
        );
        assert!(metrics.text().contains(&draining), "{}", metrics.text());
        bed.engines[0].resume().await;
    };
    let (turn, pass, ()) = in_time(Box::pin(async { tokio::join!(turn, pass, leaves) })).await;
    turn.ok();
    pass.ok();
    // The session moves with its next turn.
    bed.chat(&id, hello()).await.ok();
    assert_eq!((requests(&bed, 0), requests(&bed, 1)), (2, 7));
    let forgotten = async {
        while engines(&bed).await.len() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    in_time(forgotten).await;
    let metrics = bed.control().get("/metrics").await;
    assert!(!metrics.text().contains(&bed.engines[0].url));
    // And back, with another life.
    names.list(&bed, &[0]).await;
    bed.chat(&id, hello()).await.ok();
    assert_eq!(requests(&bed, 0), 3);
}

#[tokio::test]
async fn a_fence_finds_what_a_draining_engine_still_does() {
    let (bed, names) = found_by_name(vec![slow_engine_config(); 2]).await;
    names.list(&bed, &[0]).await;
    let id = bed.session(json!({"job": JOB})).await;
    let endless = json!({"messages": [user("hi")], "max_tokens": 20_000, "ignore_eos": true});
    let turn = bed.chat(&id, endless);
    let fence = async {
        let running = || bed.engines[0].simulator.state().running == 1;
        eventually("the turn runs", running).await;
        names.list(&bed, &[1]).await;
        let body = json!({"job": JOB, "deadline_seconds": 20});
        bed.control().post("/fence", body).await.ok()
    };
    let (turn, report) = in_time(Box::pin(async { tokio::join!(turn, fence) })).await;
    assert_eq!(report["engines"][0]["url"], bed.engines[0].url);
    assert_eq!(report["engines"][0]["aborted"], 1, "{report}");
    assert_eq!(turn.ok()["choices"][0]["finish_reason"], "abort");
}

#[tokio::test]
async fn a_name_server_that_is_out_costs_no_engine() {
    let (bed, names) = found_by_name(vec![engine_config()]).await;
    names.say(Word::Error).await;
    let ready = bed.control().get("/ready").await;
    let told = "engines.rl.svc:30000 cannot be looked up: name server failure";
    let missing = json!([format!("no engine is known: {told}")]);
    assert_eq!(ready.json()["missing"], missing);
    names.list(&bed, &[0]).await;
    let id = bed.session(json!({"job": JOB})).await;
    for (word, told, result) in [
        (Word::Error, told, "failed"),
        (
            Word::Addresses(Vec::new()),
            "engines.rl.svc:30000 has no address",
            "empty",
        ),
    ] {
        names.say(word).await;
        bed.chat(&id, hello()).await.ok();
        assert_eq!(engines(&bed).await, [(bed.engines[0].url.clone(), false)]);
        let ready = bed.control().get("/ready").await.ok();
        let warnings = json!([format!("{told}: the last list of engines is kept")]);
        assert_eq!(ready["warnings"], warnings);
        let status = bed.control().get("/status").await.ok();
        let service = &status["engine_service"];
        assert_eq!(service["name"], NAME);
        assert_eq!(service["addresses"], 1);
        assert_eq!(service["error"], told);
        assert!(service["failed_lookups"].as_u64().unwrap() > 0);
        let metrics = bed.control().get("/metrics").await;
        let count = format!("rollout_router_engine_lookups_total{{result=\"{result}\"}}");
        assert!(metrics.text().contains(&count), "{}", metrics.text());
    }
    names.list(&bed, &[0]).await;
    let status = bed.control().get("/status").await.ok();
    assert_eq!(status["engine_service"]["error"], Value::Null);
    assert_eq!(status["engine_service"]["failed_lookups"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_hangs_is_said_and_not_doubled() {
    let names = Names::new();
    *names.word.lock() = Word::Nothing;
    let resolver = names.resolver();
    let bed = Bed::untold(Vec::new(), |config: &mut Config, _| {
        config.engine_service = Some(NAME.parse().unwrap());
        config.resolver = resolver;
    })
    .await;
    tokio::time::sleep(Duration::from_secs(21)).await;
    let ready = bed.control().get("/ready").await;
    let told = "no engine is known: engines.rl.svc:30000 cannot be looked up: no answer within 5s";
    assert_eq!(ready.json()["missing"], json!([told]));
    let status = bed.control().get("/status").await.ok();
    assert_eq!(status["engine_service"]["failed_lookups"], 4);
    assert_eq!(names.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_dead_engine_of_a_service_is_named_as_not_answering() {
    let (bed, names) = found_by_name(vec![engine_config()]).await;
    names.list(&bed, &[0]).await;
    bed.engines[0].simulator.kill();
    let out = async {
        loop {
            let ready = bed.control().get("/ready").await;
            if ready.status == 503 {
                return ready.json();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ready = in_time(out).await;
    let missing = ready["missing"][0].as_str().unwrap();
    let url = &bed.engines[0].url;
    let told = format!("no engine answers, of 1 that are known: {url}: ");
    assert!(missing.starts_with(&told), "{missing}");
}

/// The list of engines of the `number`th lookup: never empty, but for the answers that say nothing.
fn shuffled(number: u64, all: &[SocketAddr]) -> io::Result<Vec<SocketAddr>> {
    let dice = number
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        >> 40;
    match dice % 20 {
        0 => return Err(io::Error::other("name server failure")),
        1 => return Ok(Vec::new()),
        _ => {}
    }
    let members = 1 + dice / 20 % ((1 << all.len()) - 1);
    let chosen = all.iter().enumerate();
    Ok(chosen
        .filter(|(index, _)| members >> index & 1 == 1)
        .map(|(_, address)| *address)
        .collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_changes_under_load_lose_no_request() {
    const CHANGES: u64 = 1_000;
    let changes = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&changes);
    let bed = Bed::untold(vec![engine_config(); 4], |config, engines| {
        let all: Vec<SocketAddr> = engines
            .iter()
            .map(super::support::Engine::address)
            .collect();
        config.engine_service = Some(NAME.parse().unwrap());
        config.resolver = Resolver::new(move |_| {
            let answer = match counted.fetch_add(1, Ordering::SeqCst) {
                number @ 1..CHANGES => shuffled(number, &all),
                _ => Ok(all.clone()),
            };
            async { answer }
        });
        config.times.lookup = Duration::from_millis(1);
        config.times.probe = Duration::from_millis(2);
    })
    .await;
    let bed = Arc::new(bed);
    eventually("the first lookup", || changes.load(Ordering::SeqCst) > 1).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for number in 0..4_u32 {
        let (bed, over) = (Arc::clone(&bed), Arc::clone(&over));
        load.spawn(async move {
            let mut answered = 0_u64;
            while !over.load(Ordering::SeqCst) {
                let id = bed.session(json!({"job": JOB})).await;
                for _ in 0..4 {
                    in_time(bed.chat(&id, hello())).await.ok();
                    let body = json!({"input_ids": [5, number], "sampling_params": {"max_new_tokens": 2, "n": 2}});
                    in_time(bed.control().post("/generate", body)).await.ok();
                    answered += 3;
                }
                let story = bed.control().get(&format!("/sessions/{id}")).await.ok();
                assert_eq!(story["records"].as_array().unwrap().len(), 4);
                let deleted = bed.control().delete(&format!("/sessions/{id}")).await;
                assert_eq!(deleted.status, 204);
            }
            answered
        });
    }
    eventually("a thousand changes", || {
        changes.load(Ordering::SeqCst) > CHANGES + 2
    })
    .await;
    over.store(true, Ordering::SeqCst);
    let mut answered = 0;
    while let Some(ended) = in_time(load.join_next()).await {
        answered += ended.unwrap();
    }
    let at_engines: u64 = (0..4).map(|index| requests(&bed, index)).sum();
    assert_eq!(at_engines, answered);
    // Nothing drains for ever, and the whole list serves.
    let settled = async {
        loop {
            let status = bed.control().get("/status").await.ok();
            let list = status["engines"].as_array().unwrap();
            let calm = list
                .iter()
                .all(|engine| engine["draining"] == false && engine["in_flight"] == 0);
            if calm && list.len() == 4 {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let status = in_time(settled).await;
    assert_eq!(status["requests_in_flight"], 0);
}
