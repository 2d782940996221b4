//! Two thousand requests at once, of which half lose their client and half are aborted: nothing of them stays.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sglang_simulator::{Config, Simulator};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::support::{call, get, post, simulator};

const REQUESTS: usize = 2_000;

/// Simulated time is free here, so this only ends what would never end.
const PATIENCE: Duration = Duration::from_mins(10);

fn engine() -> Simulator {
    simulator(Config {
        max_running_requests: 512,
        kv_cache_tokens: 400_000,
        ..Config::default()
    })
}

fn body(number: usize) -> Value {
    // eight prompts, so that the prefix cache has something to share and to count
    let ids: Vec<usize> = (0..40).map(|index| (number % 8) * 50 + index + 1).collect();
    json!({"rid": format!("r{number}"), "input_ids": ids, "stream": number % 4 < 2, "return_logprob": number.is_multiple_of(3),
        "sampling_params": {"max_new_tokens": 4000, "ignore_eos": true}})
}

/// A client that reads its whole answer.
fn client(engine: &Simulator, body: &Value) -> impl Future<Output = (u16, String)> + use<> {
    let router = engine.router();
    let request = Request::post("/generate")
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    async move {
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

async fn until(engine: &Simulator, what: &str, holds: impl Fn(&Simulator) -> bool) {
    let waiting = async {
        while !holds(engine) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(ended.is_ok(), "never {what}: {:?}", engine.state());
}

async fn load(engine: &Simulator) -> Value {
    get(engine, "/v1/loads").await.json()["loads"][0].take()
}

#[tokio::test(start_paused = true)]
async fn a_crowd_of_lost_and_aborted_requests_leaves_nothing() {
    let engine = engine();
    let mut lost = JoinSet::new();
    let mut aborted = JoinSet::new();
    for number in 0..REQUESTS {
        let clients = if number % 2 == 0 {
            &mut lost
        } else {
            &mut aborted
        };
        clients.spawn(client(&engine, &body(number)));
    }
    until(&engine, "all in flight", |engine| {
        engine.state().in_flight.len() == REQUESTS
    })
    .await;
    until(&engine, "a full batch", |engine| {
        engine.state().running == 512
    })
    .await;
    lost.shutdown().await;
    for number in (1..REQUESTS).step_by(2) {
        let rid = format!("r{number}");
        // an abort is of a prefix where the rid is not known any more
        let reply = post(&engine, "/abort_request", json!({"rid": rid})).await;
        assert_eq!(reply.status, 200);
    }
    while let Some(ended) = aborted.join_next().await {
        let (status, text) = ended.unwrap();
        assert_eq!(status, 200, "{text}");
        assert!(text.contains("\"type\":\"abort\""), "{text}");
    }
    until(&engine, "empty", |engine| {
        engine.state().in_flight.is_empty()
    })
    .await;

    let state = engine.state();
    assert_eq!((state.running, state.waiting, state.gated), (0, 0, 0));
    assert_eq!(state.finished + state.aborted, REQUESTS as u64, "{state:?}");
    assert!(
        state.paths.values().all(|path| path.active == 0),
        "{:?}",
        state.paths
    );
    let idle = load(&engine).await;
    assert_eq!(
        (&idle["num_running_reqs"], &idle["num_waiting_reqs"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(
        idle["num_used_tokens"], 0,
        "what is only cached is not used: {idle}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_whole_after_a_crowd() {
    let engine = engine();
    let mut clients = JoinSet::new();
    for number in 0..200 {
        clients.spawn(client(&engine, &body(number)));
    }
    until(&engine, "all in flight", |engine| {
        engine.state().in_flight.len() == 200
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    clients.shutdown().await;
    until(&engine, "empty", |engine| {
        engine.state().in_flight.is_empty()
    })
    .await;

    // what was computed is found again, and no more than that
    let again =
        json!({"input_ids": body(0)["input_ids"], "sampling_params": {"max_new_tokens": 1}});
    let answer = post(&engine, "/generate", again.clone()).await.json();
    assert_eq!(answer["meta_info"]["cached_tokens"], 39);
    let flushed = Request::post("/flush_cache").body(Body::empty()).unwrap();
    assert_eq!(call(&engine, flushed).await.status, 200);
    let answer = post(&engine, "/generate", again).await.json();
    assert_eq!(answer["meta_info"]["cached_tokens"], 0);

    // and all of the memory can be had
    let large = json!({"input_ids": vec![7; 30_000], "sampling_params": {"max_new_tokens": 1}});
    let mut clients = JoinSet::new();
    for number in 0..13_u32 {
        let mut request = large.clone();
        request["input_ids"][0] = json!(number + 1);
        clients.spawn(client(&engine, &request));
    }
    while let Some(ended) = clients.join_next().await {
        assert_eq!(ended.unwrap().0, 200);
    }
}
