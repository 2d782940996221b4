//! The latency model: what takes how long, and what waits.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use sglang_simulator::{Config, Server};
use tokio::time::Instant;

use crate::support::{get, post, simulator};

fn generate(prompt: &[u32], tokens: u32) -> Value {
    json!({"input_ids": prompt, "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}})
}

fn milliseconds(start: Instant) -> u128 {
    start.elapsed().as_millis()
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_its_prefill_and_one_step_per_further_token() {
    let engine = simulator(Config {
        decode_tokens_per_second: 100,
        prefill_tokens_per_second: 1000,
        ..Config::default()
    });
    let start = Instant::now();
    post(&engine, "/generate", generate(&[7; 500], 101)).await;
    assert!(
        (1500..1510).contains(&milliseconds(start)),
        "0.5 s of prefill and 100 steps of 10 ms"
    );
}

#[tokio::test(start_paused = true)]
async fn every_further_request_slows_all_down() {
    let config = Config {
        decode_tokens_per_second: 100,
        decode_slowdown_percent: 10,
        ..Config::default()
    };
    let engine = simulator(config);
    let start = Instant::now();
    join_all((0..11).map(|i| post(&engine, "/generate", generate(&[i, 1, 2], 101)))).await;
    let took = milliseconds(start);
    assert!(
        (2000..2100).contains(&took),
        "ten others double each step of 10 ms; it took {took} ms"
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_scale_divides_every_duration() {
    let engine = simulator(Config {
        time_scale: 100,
        ..Config::default()
    });
    let start = Instant::now();
    let answer = post(&engine, "/generate", generate(&[1, 2, 3], 1701))
        .await
        .json();
    assert!(
        (100..110).contains(&milliseconds(start)),
        "ten seconds at a hundred times the speed"
    );
    let latency = answer["meta_info"]["e2e_latency"].as_f64().unwrap();
    assert!(
        (10.0..10.5).contains(&latency),
        "the engine's own clock says {latency}"
    );
    let start = Instant::now();
    assert_eq!(get(&engine, "/health").await.status, 200);
    assert!((10..15).contains(&milliseconds(start)));
}

#[tokio::test(start_paused = true)]
async fn beyond_the_running_limit_requests_wait_their_turn() {
    let config = Config {
        max_running_requests: 2,
        decode_tokens_per_second: 100,
        decode_slowdown_percent: 0,
        ..Config::default()
    };
    let engine = simulator(config);
    let start = Instant::now();
    let requests = (0..4).map(|i| async move {
        let body = json!({"rid": format!("r{i}"), "input_ids": [i, 1], "sampling_params": {"max_new_tokens": 101, "ignore_eos": true}});
        body
    });
    let bodies = join_all(requests).await;
    let answers = join_all(
        bodies
            .into_iter()
            .map(|body| post(&engine, "/generate", body)),
    )
    .await;
    assert!(
        (2000..2050).contains(&milliseconds(start)),
        "two by two, a second each"
    );
    let queued: Vec<f64> = answers
        .iter()
        .map(|answer| answer.json()["meta_info"]["queue_time"].as_f64().unwrap())
        .collect();
    assert!(queued[0] < 0.1 && queued[3] > 0.9, "{queued:?}");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_turns_away() {
    let engine = simulator(Config {
        max_running_requests: 1,
        max_queued_requests: 1,
        ..Config::default()
    });
    let bodies = (0..3).map(|i| generate(&[i, 1, 2], 50));
    let replies = join_all(bodies.map(|body| post(&engine, "/generate", body))).await;
    let mut statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 503]);
    assert_eq!(engine.state().rejected, 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_computed_is_found_again() {
    let engine = simulator(Config {
        prefill_tokens_per_second: 1000,
        ..Config::default()
    });
    let prompt: Vec<u32> = (0..900).map(|i| i % 1000).collect();
    let first = post(&engine, "/generate", generate(&prompt, 10))
        .await
        .json();
    assert_eq!(first["meta_info"]["cached_tokens"], 0);
    let mut longer = prompt.clone();
    longer.extend(
        first["output_ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()),
    );
    let start = Instant::now();
    let second = post(&engine, "/generate", generate(&longer, 1))
        .await
        .json();
    assert_eq!(
        second["meta_info"]["cached_tokens"], 909,
        "all but the last token, which has to be computed"
    );
    assert!(
        milliseconds(start) < 20,
        "there is nearly nothing to prefill"
    );
    post(&engine, "/flush_cache", json!({})).await;
    let third = post(&engine, "/generate", generate(&longer, 1))
        .await
        .json();
    assert_eq!(third["meta_info"]["cached_tokens"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_memory_retracts_and_loses_nothing() {
    let config = Config {
        kv_cache_tokens: 600,
        server: Server {
            context_length: 500,
            ..Server::default()
        },
        ..Config::default()
    };
    let engine = simulator(config);
    let bodies = (0..4).map(|i| generate(&[i; 20], 400));
    let replies = join_all(bodies.map(|body| post(&engine, "/generate", body))).await;
    let answers: Vec<_> = replies.iter().map(crate::support::Reply::json).collect();
    for answer in &answers {
        assert_eq!(
            answer["output_ids"].as_array().unwrap().len(),
            400,
            "{}",
            answer["meta_info"]
        );
    }
    let retractions: u64 = answers
        .iter()
        .map(|answer| answer["meta_info"]["num_retractions"].as_u64().unwrap())
        .sum();
    assert!(retractions > 0, "four times 420 tokens do not fit into 600");
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_time_for_requests() {
    let engine = simulator(Config::default());
    let start = Instant::now();
    let (reply, ()) = tokio::join!(post(&engine, "/generate", generate(&[1, 2], 171)), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        post(&engine, "/pause_generation", json!({"mode": "in_place"})).await;
        assert!(engine.state().paused);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(get(&engine, "/ready").await.status, 503);
        post(&engine, "/continue_generation", json!({})).await;
    });
    assert_eq!(reply.json()["meta_info"]["completion_tokens"], 171);
    assert_eq!(start.elapsed().as_secs(), 61);
}
