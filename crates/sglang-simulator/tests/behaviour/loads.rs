//! What the scheduler reports, slots of lost clients, and who the server is.

use serde_json::{Value, json};

use crate::engine::{Engine, MAX_RUNNING, same};

pub(crate) async fn running_and_waiting_are_counted(engine: &Engine) {
    let report = engine.get("/v1/loads").await.ok();
    same(
        &report["loads"][0]["max_running_requests"],
        &json!(MAX_RUNNING),
        &report,
    );
    let requests: Vec<_> = (0..MAX_RUNNING + 3)
        .map(|index| engine.start("/generate", &engine.medium(&format!("load-{index:02}"))))
        .collect();
    engine.until_load(MAX_RUNNING, 3).await;
    let report = engine.get("/v1/loads").await.ok();
    assert!(
        report["loads"][0]["num_used_tokens"]
            .as_u64()
            .is_some_and(|tokens| tokens > 0),
        "{report}"
    );
    assert!(
        report["loads"][0]["token_usage"]
            .as_f64()
            .is_some_and(|usage| usage > 0.0 && usage <= 1.0),
        "{report}"
    );
    engine.abort(&json!({"abort_all": true})).await;
    for request in requests {
        request.answer().await.ok();
    }
    engine.until_load(0, 0).await;
}

pub(crate) async fn memory_limits_what_runs(engine: &Engine) {
    let memory = engine.get("/v1/loads").await.ok()["loads"][0]["max_total_num_tokens"]
        .as_u64()
        .unwrap();
    assert_eq!(memory, 16_384);
    // Each may come to need 3000 tokens of it.
    let requests: Vec<_> = (0..MAX_RUNNING)
        .map(|index| engine.start("/generate", &engine.long(&format!("large-{index:02}"))))
        .collect();
    engine
        .until("some run and some wait", |load| {
            load.running > 1 && load.waiting > 1
        })
        .await;
    engine.abort(&json!({"abort_all": true})).await;
    for request in requests {
        request.answer().await.ok();
    }
}

pub(crate) async fn a_lost_client_frees_its_slot(engine: &Engine) {
    let request = engine.start("/generate", &engine.long("lost"));
    let staying = engine.start("/generate", &engine.long("staying"));
    engine.until_load(2, 0).await;
    drop(request);
    engine.until_load(1, 0).await;
    engine.abort(&json!({"rid": "staying"})).await;
    let answer = staying.answer().await.ok();
    same(
        &answer["meta_info"]["finish_reason"]["type"],
        &json!("abort"),
        &answer,
    );
}

pub(crate) async fn a_lost_stream_frees_its_slot(engine: &Engine) {
    let mut body = engine.long("lost-stream");
    body["stream"] = json!(true);
    let mut stream = engine.stream("/generate", &body).await;
    stream.next().await.unwrap();
    engine.until_load(1, 0).await;
    drop(stream);
    engine.until_load(0, 0).await;
}

pub(crate) async fn identity_of_the_server(engine: &Engine) {
    let old_and_new = [
        engine.get("/get_model_info").await.ok(),
        engine.get("/model_info").await.ok(),
    ];
    let [old, info] = &old_and_new;
    same(&old, &info, old);
    // An update from disk changes the name, so that it is not always the one of the command line.
    let models = engine.get("/v1/models").await.ok();
    same(
        &models["data"][0]["id"],
        &info["served_model_name"],
        &models,
    );
    same(
        &models["data"][0]["root"],
        &info["served_model_name"],
        &models,
    );
    same(&models["data"][0]["max_model_len"], &json!(4096), &models);
    for path in ["/server_info", "/get_server_info"] {
        let info = engine.get(path).await.ok();
        same(&info["version"], &json!("0.5.23"), &Value::Null);
        same(
            &info["max_running_requests"],
            &json!(MAX_RUNNING),
            &Value::Null,
        );
    }
    assert_eq!(engine.get("/get_load").await.status, 404);
}

pub(crate) async fn health_of_an_idle_engine(engine: &Engine) {
    for path in ["/health", "/health_generate", "/ready", "/ping"] {
        let answer = engine.get(path).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, ""), "{path}");
    }
    assert!(
        engine
            .get("/metrics")
            .await
            .text
            .contains("sglang:num_running_reqs")
    );
}
