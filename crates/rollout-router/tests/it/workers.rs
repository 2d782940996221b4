//! The list of engines is changed while the router works, and control calls go to all of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::support::{Bed, Client, Engine, Served, engine_config, in_time, slow_engine_config};

fn work(tokens: u32) -> Value {
    json!({"input_ids": [5, 6], "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}})
}

fn finished(engine: &Engine) -> u64 {
    engine
        .simulator
        .state()
        .paths
        .get("/generate")
        .map_or(0, |path| path.requests)
}

async fn workers(client: &Client) -> Vec<Value> {
    let list = client.get("/workers").await.ok();
    assert_eq!(list["total"], list["stats"]["regular_count"]);
    list["workers"].as_array().unwrap().clone()
}

#[tokio::test]
async fn an_engine_that_is_added_gets_work() {
    let bed = Bed::start().await;
    let more = Engine::start(engine_config()).await;
    let control = bed.control();
    let added = control.post("/workers", json!({"url": more.url})).await;
    assert_eq!(added.status, 202);
    let location = added.headers["location"].to_str().unwrap().to_owned();
    let added = added.json();
    assert_eq!(added["url"], more.url);
    assert_eq!(added["location"], location);
    for _ in 0..8 {
        control.post("/generate", work(1)).await.ok();
    }
    assert_eq!((finished(&bed.engines[0]), finished(&more)), (4, 4));
    let one = control.get(&location).await.ok();
    assert_eq!(
        (&one["id"], &one["url"]),
        (&added["worker_id"], &json!(more.url))
    );
    assert_eq!(
        (&one["is_healthy"], &one["load"]),
        (&json!(true), &json!(0))
    );
    let urls = control.get("/list_workers").await.ok();
    assert_eq!(urls, json!({"urls": [bed.engines[0].url, more.url]}));
    let twice = control.post("/workers", json!({"url": more.url})).await;
    assert_eq!(twice.status, 409);
    assert_eq!(twice.error(), format!("{} is a worker already", more.url));
}

#[tokio::test]
async fn the_older_dialect_repeats_without_harm() {
    let bed = Bed::start().await;
    let more = Engine::start(engine_config()).await;
    let control = bed.control();
    let both = json!({"status": "success", "worker_urls": {&bed.engines[0].url: 0, &more.url: 0}});
    let one = json!({"status": "success", "worker_urls": {&bed.engines[0].url: 0}});
    let encoded: String = form_urlencoded::byte_serialize(more.url.as_bytes()).collect();
    for (path, body, expected) in [
        (format!("/add_worker?url={encoded}"), json!({}), &both),
        (
            format!("/add_worker?worker_url={}", more.url),
            json!({}),
            &both,
        ),
        (
            "/add_worker".to_owned(),
            json!({"worker_url": more.url}),
            &both,
        ),
        (format!("/remove_worker?url={encoded}"), json!({}), &one),
        ("/remove_worker".to_owned(), json!({"url": more.url}), &one),
        ("/add_worker".to_owned(), json!({"url": more.url}), &both),
    ] {
        assert_eq!(&control.post(&path, body).await.ok(), expected, "{path}");
    }
    let gone = control.delete(&format!("/workers/{encoded}")).await;
    assert_eq!(gone.status, 202);
    assert_eq!(workers(&control).await[1]["draining"], true);
}

#[tokio::test]
async fn an_engine_that_is_taken_away_ends_what_it_has() {
    let bed = Bed::with(vec![slow_engine_config(), engine_config()], |config| {
        config.times.probe = Duration::from_millis(20);
    })
    .await;
    let served = Served::start(&bed.router).await;
    let control = bed.control();
    let long = {
        let control = control.clone();
        TaskTracker::new().spawn(async move { control.post("/generate", work(300)).await })
    };
    in_time(async {
        while bed.engines[0].simulator.state().running == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let id = workers(&control).await[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(control.delete(&format!("/workers/{id}")).await.status, 202);
    for _ in 0..4 {
        control.post("/generate", work(1)).await.ok();
    }
    assert_eq!(finished(&bed.engines[1]), 4);
    let answer = in_time(long).await.unwrap().ok();
    assert_eq!(answer["meta_info"]["completion_tokens"], 300);
    in_time(async {
        while workers(&control).await.len() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let gone = control.get(&format!("/workers/{id}")).await;
    assert_eq!(gone.status, 404);
    assert_eq!(
        gone.error(),
        format!("no worker {id}: GET /workers lists them")
    );
    served.cancel.cancel();
}

#[tokio::test]
async fn without_an_engine_a_request_is_told_how_to_get_one() {
    let bed = Bed::start().await;
    let control = bed.control();
    let path = format!("/remove_worker?url={}", bed.engines[0].url);
    control.post(&path, json!({})).await.ok();
    let refused = control.post("/generate", work(1)).await;
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.error(),
        "no engine is available: all were taken away: add one with POST /workers"
    );
    let path = format!("/add_worker?url={}", bed.engines[0].url);
    control.post(&path, json!({})).await.ok();
    control.post("/generate", work(1)).await.ok();
}

#[tokio::test]
async fn a_bad_worker_is_refused() {
    let bed = Bed::start().await;
    for (path, body, told) in [
        ("/add_worker", json!({}), "worker_url is required"),
        ("/workers", json!({"url": ""}), "worker_url is required"),
        (
            "/workers",
            json!({"url": "10.0.0.1:30000"}),
            "engine URL 10.0.0.1:30000: does not start with http",
        ),
        (
            "/workers",
            json!({"url": "http://h:1/v1"}),
            "engine URL http://h:1/v1: has a path",
        ),
        (
            "/workers",
            json!({"url": "http://h:1", "worker_type": "prefill"}),
            "worker_type: all engines",
        ),
        (
            "/workers",
            json!({"url": "http://h:1", "api_key": "k"}),
            "api_key: all engines",
        ),
        ("/workers", json!({"url": 7}), "invalid JSON body"),
    ] {
        let refused = bed.control().post(path, body).await;
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.error().starts_with(told), "{}", refused.error());
    }
    assert_eq!(workers(&bed.control()).await.len(), 1);
}

#[tokio::test]
async fn a_control_call_reaches_every_engine() {
    let bed = Bed::with(vec![engine_config(), engine_config()], |_| {}).await;
    let control = bed.control();
    let pause = json!({"mode": "in_place"});
    let paused = control.post("/pause_generation", pause).await.ok();
    let results = paused["engines"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    for (engine, result) in bed.engines.iter().zip(results) {
        assert_eq!(
            (&result["url"], &result["status"]),
            (&json!(engine.url), &json!(200))
        );
        assert!(result["body"].is_object(), "{result}");
    }
    control.post("/continue_generation", json!({})).await.ok();
    let version = json!({"new_version": "7", "abort_all_requests": false});
    control.post("/update_weight_version", version).await.ok();
    for _ in 0..2 {
        let answer = control.post("/generate", work(1)).await.ok();
        assert_eq!(answer["meta_info"]["weight_version"], "7");
    }
    control.get("/flush_cache").await.ok();
    assert_eq!(control.get("/pause_generation").await.status, 405);
}

#[tokio::test]
async fn an_engine_that_fails_a_control_call_is_named() {
    let bed = Bed::with(vec![engine_config(), engine_config()], |_| {}).await;
    bed.engines[1].simulator.kill();
    let answer = bed.control().post("/flush_cache", json!({})).await;
    assert_eq!(answer.status, 207);
    let results = answer.json()["engines"].clone();
    assert_eq!(results[0]["status"], 200);
    assert_eq!(results[1]["url"], bed.engines[1].url);
    assert!(results[1]["status"].is_null());
    assert!(results[1]["error"].is_string(), "{results}");
    let refused = bed
        .control()
        .post("/update_weight_version", json!({}))
        .await;
    assert_eq!(refused.status, 207);
    assert_eq!(refused.json()["engines"][0]["status"], 400);
}

/// Else some engines would have the new weights and some the old ones.
#[tokio::test]
async fn a_control_call_is_brought_to_its_end_without_its_client() {
    use sglang_simulator::{Fault, FaultKind};
    let stall = Fault::new("/update_weight_version", FaultKind::Stall).seconds(200.0);
    let slow = sglang_simulator::Config {
        faults: vec![stall],
        ..engine_config()
    };
    let bed = Bed::with(vec![slow, engine_config()], |_| {}).await;
    let control = bed.control();
    let version = json!({"new_version": "7", "abort_all_requests": false});
    let call = control.post("/update_weight_version", version);
    tokio::time::timeout(Duration::from_millis(50), call)
        .await
        .unwrap_err();
    in_time(async {
        let mut known = [false; 2];
        while known != [true; 2] {
            for (engine, known) in bed.engines.iter().zip(&mut known) {
                *known |= engine.weight_version().await == "7";
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
