//! Aborts: what the client of the aborted request gets, and who else is hit.

use serde_json::{Value, json};

use crate::engine::{Engine, MAX_RUNNING, ids_of, same, triples};

fn finish_reason(answer: &Value) -> &Value {
    &answer["meta_info"]["finish_reason"]
}

fn aborted() -> Value {
    json!({"type": "abort", "message": "Aborted", "status_code": null, "err_type": null})
}

fn long_chat(rid: &str, stream: bool) -> Value {
    json!({
        "model": "tiny", "rid": rid, "messages": [{"role": "user", "content": "A long story."}],
        "max_tokens": 3000, "temperature": 0, "ignore_eos": true, "stream": stream,
    })
}

pub(crate) async fn a_running_request_keeps_what_it_has(engine: &Engine) {
    let request = engine.start("/generate", &engine.long("running"));
    engine.until_load(1, 0).await;
    engine.abort(&json!({"rid": "running"})).await;
    let answer = request.answer().await.ok();
    same(finish_reason(&answer), &aborted(), &answer);
    let ids = ids_of(&answer["output_ids"]);
    assert!(!ids.is_empty() && ids.len() < 3000, "{answer}");
    let meta = &answer["meta_info"];
    same(&meta["completion_tokens"], &json!(ids.len()), &answer);
    same(
        &meta["prompt_tokens"],
        &json!(engine.ids("A long story.").len()),
        &answer,
    );
    let log_probs = triples(&meta["output_token_logprobs"]);
    same(
        &log_probs.iter().map(|(_, id, _)| *id).collect::<Vec<_>>(),
        &ids,
        &answer,
    );
    engine.until_load(0, 0).await;
}

pub(crate) async fn a_queued_request_has_thin_counters(engine: &Engine) {
    let running: Vec<_> = (0..MAX_RUNNING)
        .map(|index| engine.start("/generate", &engine.medium(&format!("run-{index:02}"))))
        .collect();
    engine.until_load(MAX_RUNNING, 0).await;
    let queued = engine.start("/generate", &engine.long("queued"));
    engine.until_load(MAX_RUNNING, 1).await;
    engine.abort(&json!({"rid": "queued"})).await;
    let answer = queued.answer().await.ok();
    same(
        finish_reason(&answer),
        &json!({"type": "abort", "message": "Abort in waiting queue"}),
        &answer,
    );
    same(&answer["output_ids"], &json!([]), &answer);
    same(&answer["text"], &json!(""), &answer);
    let meta = answer["meta_info"].as_object().unwrap();
    same(&meta["completion_tokens"], &json!(0), &answer);
    same(
        &(meta.get("prompt_tokens"), meta.get("cached_tokens")),
        &(None, None),
        &answer,
    );
    engine.until_load(MAX_RUNNING, 0).await;
    engine.abort(&json!({"abort_all": true})).await;
    for request in running {
        same(
            finish_reason(&request.answer().await.ok()),
            &aborted(),
            &json!("running"),
        );
    }
}

pub(crate) async fn everything_at_once(engine: &Engine) {
    for body in [
        json!({"abort_all": true}),
        json!({"rid": "", "abort_all": true}),
    ] {
        let requests: Vec<_> = (0..3)
            .map(|index| engine.start("/generate", &engine.long(&format!("all-{index}"))))
            .collect();
        engine.until_load(3, 0).await;
        engine.abort(&body).await;
        for request in requests {
            same(
                finish_reason(&request.answer().await.ok()),
                &aborted(),
                &body,
            );
        }
    }
}

pub(crate) async fn of_an_unknown_rid_touches_nothing(engine: &Engine) {
    let mut request = engine.start("/generate", &engine.long("mine"));
    engine.until_load(1, 0).await;
    for body in [
        json!({"rid": "not-mine"}),
        json!({"rid": "min"}),
        json!({}),
        json!({"rid": ""}),
    ] {
        engine.abort(&body).await;
    }
    same(&engine.load().await.running, &1, &json!("load"));
    assert!(!request.is_done());
    engine.abort(&json!({"rid": "mine"})).await;
    same(
        finish_reason(&request.answer().await.ok()),
        &aborted(),
        &json!("mine"),
    );
}

pub(crate) async fn of_a_prefix_takes_the_longer_rids_too(engine: &Engine) {
    let rids = ["job-1", "job-10", "job-1/a", "job-2"];
    let mut requests: Vec<_> = rids
        .iter()
        .map(|rid| engine.start("/generate", &engine.long(rid)))
        .collect();
    engine.until_load(4, 0).await;
    engine.abort(&json!({"rid": "job-1"})).await;
    let other = requests.pop().unwrap();
    for request in requests {
        same(
            finish_reason(&request.answer().await.ok()),
            &aborted(),
            &json!("starts with job-1"),
        );
    }
    engine.until_load(1, 0).await;
    engine.abort(&json!({"rid": "job-2"})).await;
    same(
        finish_reason(&other.answer().await.ok()),
        &aborted(),
        &json!("job-2"),
    );
}

pub(crate) async fn of_one_part_of_a_batch(engine: &Engine) {
    let mut body = engine.long("batch");
    body["input_ids"] = json!([engine.ids("A long story."), engine.ids("Another.")]);
    let request = engine.start("/generate", &body);
    engine.until_load(2, 0).await;
    // The rid that the client gave is not one of those that the parts got.
    engine.abort(&json!({"rid": "batch"})).await;
    engine.abort(&json!({"rid": "batch_1"})).await;
    engine.until_load(1, 0).await;
    engine.abort(&json!({"rid": "batch_0"})).await;
    let answer = request.answer().await.ok();
    for part in answer.as_array().unwrap() {
        same(finish_reason(part), &aborted(), part);
    }
}

pub(crate) async fn a_chat(engine: &Engine) {
    let request = engine.start("/v1/chat/completions", &long_chat("chat", false));
    engine.until_load(1, 0).await;
    engine.abort(&json!({"rid": "chat"})).await;
    let answer = request.answer().await.ok();
    same(&answer["id"], &json!("chat"), &answer);
    same(
        &answer["choices"][0]["finish_reason"],
        &json!("abort"),
        &answer,
    );
    assert!(
        answer["usage"]["completion_tokens"]
            .as_u64()
            .is_some_and(|count| count > 0 && count < 3000),
        "{answer}"
    );
}

pub(crate) async fn a_streamed_chat(engine: &Engine) {
    let mut stream = engine
        .stream("/v1/chat/completions", &long_chat("streamed", true))
        .await;
    assert_eq!(
        stream.next().await.unwrap()["choices"][0]["delta"]["role"],
        "assistant"
    );
    engine.until_load(1, 0).await;
    engine.abort(&json!({"rid": "streamed"})).await;
    let mut last = Value::Null;
    while let Some(event) = stream.next().await {
        last = event;
    }
    same(&last["choices"][0]["finish_reason"], &json!("abort"), &last);
}

pub(crate) async fn of_a_paused_request_shows_after_the_pause(engine: &Engine) {
    let mut request = engine.start("/generate", &engine.long("paused"));
    engine.until_load(1, 0).await;
    engine.pause("in_place").await;
    engine.abort(&json!({"rid": "paused"})).await;
    // A round trip to the scheduler and back.
    assert_eq!(engine.post_nothing("/flush_cache").await.status, 400);
    assert!(!request.is_done());
    engine.resume().await;
    same(
        finish_reason(&request.answer().await.ok()),
        &aborted(),
        &json!("after the pause"),
    );
}

pub(crate) async fn a_request_at_the_pause_gate_survives(engine: &Engine) {
    engine.pause("in_place").await;
    let mut body = engine.long("at-the-gate");
    body["sampling_params"]["max_new_tokens"] = json!(4);
    let mut request = engine.start("/generate", &body);
    for _ in 0..3 {
        engine.abort(&json!({"rid": "at-the-gate"})).await;
        engine.abort(&json!({"abort_all": true})).await;
    }
    assert!(!request.is_done());
    engine.resume().await;
    let answer = request.answer().await.ok();
    same(
        finish_reason(&answer),
        &json!({"type": "length", "length": 4}),
        &answer,
    );
}

pub(crate) async fn a_rid_in_use_is_refused(engine: &Engine) {
    let first = engine.start("/generate", &engine.long("twice"));
    engine.until_load(1, 0).await;
    let second = engine.post("/generate", &engine.long("twice")).await;
    assert_eq!(second.status, 400);
    assert_eq!(
        second.json(),
        json!({"error": {"message": "Duplicate request ID detected: twice"}})
    );
    same(&engine.load().await.running, &1, &json!("load"));
    engine.abort(&json!({"rid": "twice"})).await;
    same(
        finish_reason(&first.answer().await.ok()),
        &aborted(),
        &json!("the first"),
    );
}

pub(crate) async fn a_rid_is_free_again_afterwards(engine: &Engine) {
    for _ in 0..2 {
        let request = engine.start("/generate", &engine.long("again"));
        engine.until_load(1, 0).await;
        engine.abort(&json!({"rid": "again"})).await;
        same(
            finish_reason(&request.answer().await.ok()),
            &aborted(),
            &json!("again"),
        );
        engine.until_load(0, 0).await;
    }
}
