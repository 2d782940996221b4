//! Pausing: three modes, what runs, what comes, and the cache.

use serde_json::{Value, json};

use crate::engine::{Engine, ids_of, same};

/// Seconds of work, but an end that can be waited for.
fn work(engine: &Engine, rid: &str) -> Value {
    let mut body = engine.long(rid);
    body["sampling_params"]["max_new_tokens"] = json!(400);
    body
}

fn length(count: usize) -> Value {
    json!({"type": "length", "length": count})
}

pub(crate) async fn aborting_ends_what_runs_and_holds_what_comes(engine: &Engine) {
    let running = engine.start("/generate", &engine.long("before"));
    engine.until_load(1, 0).await;
    engine.pause("abort").await;
    let answer = running.answer().await.ok();
    same(
        &answer["meta_info"]["finish_reason"]["type"],
        &json!("abort"),
        &answer,
    );

    let mut coming = engine.start("/generate", &json!({"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 2, "ignore_eos": true}}));
    engine.flush().await;
    assert!(!coming.is_done());
    engine.resume().await;
    let answer = coming.answer().await.ok();
    same(&answer["meta_info"]["finish_reason"], &length(2), &answer);
}

pub(crate) async fn in_place_goes_on_where_it_was(engine: &Engine) {
    let undisturbed = engine.generate(&work(engine, "undisturbed")).await;
    let mut request = engine.start("/generate", &work(engine, "held"));
    engine.until_load(1, 0).await;
    engine.pause("in_place").await;
    assert_eq!(engine.post_nothing("/flush_cache").await.status, 400);
    assert!(!request.is_done());
    engine.resume().await;
    let answer = request.answer().await.ok();
    same(&answer["meta_info"]["finish_reason"], &length(400), &answer);
    same(&answer["meta_info"]["num_retractions"], &json!(0), &answer);
    same(&answer["output_ids"], &undisturbed["output_ids"], &answer);
}

pub(crate) async fn in_place_keeps_the_cache(engine: &Engine) {
    let request = engine.start("/generate", &engine.long("held"));
    engine.until_load(1, 0).await;
    engine.pause("in_place").await;
    let flushed = engine.post_nothing("/flush_cache").await;
    assert_eq!(
        (flushed.status, flushed.text.as_str()),
        (400, "Flush cache failed.\n")
    );
    engine.resume().await;
    engine.abort(&json!({"rid": "held"})).await;
    request.answer().await.ok();
}

pub(crate) async fn retracting_computes_again(engine: &Engine) {
    let mut request = engine.start("/generate", &work(engine, "retracted"));
    engine.until_load(1, 0).await;
    engine.pause("retract").await;
    engine.flush().await;
    assert!(!request.is_done());
    engine.resume().await;
    let answer = request.answer().await.ok();
    same(&answer["meta_info"]["finish_reason"], &length(400), &answer);
    same(&answer["meta_info"]["num_retractions"], &json!(1), &answer);
    same(&ids_of(&answer["output_ids"]).len(), &400, &answer);
    same(
        &answer["meta_info"]["output_token_logprobs_length"],
        &json!(400),
        &answer,
    );
}

pub(crate) async fn twice_is_once(engine: &Engine) {
    engine.pause("in_place").await;
    engine.pause("in_place").await;
    engine.resume().await;
    let answer = engine.generate(&json!({"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 2, "ignore_eos": true}})).await;
    same(&answer["meta_info"]["finish_reason"], &length(2), &answer);
    engine.resume().await;
}

/// The probe generates a token: it waits at the gate until its time is up, 20 s.
pub(crate) async fn health_is_lost_meanwhile(engine: &Engine) {
    engine.pause("in_place").await;
    assert_eq!(engine.get("/health").await.status, 503);
    // It takes the other probes along.
    assert_eq!(engine.get("/ping").await.status, 503);
    engine.resume().await;
    assert_eq!(engine.get("/health").await.status, 200);
    assert_eq!(engine.get("/ping").await.status, 200);
}

pub(crate) async fn the_control_plane_answers_meanwhile(engine: &Engine) {
    engine.pause("in_place").await;
    for path in [
        "/model_info",
        "/v1/models",
        "/v1/loads",
        "/server_info",
        "/ping",
    ] {
        assert_eq!(engine.get(path).await.status, 200, "{path}");
    }
    assert_eq!(engine.get("/ready").await.status, 503);
    engine.resume().await;
    assert_eq!(engine.get("/ready").await.status, 200);
}

pub(crate) async fn malformed_requests(engine: &Engine) {
    for path in ["/pause_generation", "/continue_generation"] {
        let answer = engine.post_nothing(path).await;
        assert_eq!(answer.status, 400, "{path} without a body");
        let body = answer.json();
        same(&body["type"], &json!("Bad Request"), &body);
        assert!(
            body["message"]
                .as_str()
                .unwrap()
                .starts_with("1 validation error:\n  {'type': 'missing', 'loc': ('body',)"),
            "{body}"
        );
    }
    let answer = engine
        .post("/pause_generation", &json!({"mode": "gently"}))
        .await;
    assert_eq!(answer.status, 400);
    assert!(
        answer
            .text
            .contains("Input should be 'abort', 'retract' or 'in_place'"),
        "{}",
        answer.text
    );
    // None of these paused it.
    assert_eq!(engine.get("/ready").await.status, 200);
}
