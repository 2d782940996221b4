//! Weight versions: updates from disk, and what answers say about them.

use serde_json::{Value, json};

use crate::engine::{Engine, same};

async fn one_token(engine: &Engine) -> Value {
    engine.generate(&json!({"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 1, "ignore_eos": true}})).await
}

async fn current(engine: &Engine) -> String {
    engine.get("/model_info").await.ok()["weight_version"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// The same checkpoint once more, as another version.
async fn update(engine: &Engine, version: &str, more: &Value) -> Value {
    let path = engine.get("/model_info").await.ok()["model_path"].clone();
    let mut body = json!({"model_path": path, "weight_version": version});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    engine.post("/update_weights_from_disk", &body).await.ok()
}

async fn rename(engine: &Engine, version: &str) -> Value {
    let body = json!({"new_version": version, "abort_all_requests": false});
    engine.post("/update_weight_version", &body).await.ok()
}

pub(crate) async fn a_new_version_is_in_every_answer(engine: &Engine) {
    let before = current(engine).await;
    same(
        &one_token(engine).await["meta_info"]["weight_version"],
        &json!(before),
        &json!("before"),
    );
    // An update that meets a request which the scheduler does not know to be over yet answers 400, the weights being updated.
    engine.flush().await;
    let updated = update(engine, "step-2", &json!({})).await;
    let message = "Succeeded to update model weights. Weight version updated to step-2.";
    same(
        &updated,
        &json!({"success": true, "message": message, "num_paused_requests": 0}),
        &updated,
    );
    same(&current(engine).await.as_str(), &"step-2", &updated);
    let answer = one_token(engine).await;
    same(
        &answer["meta_info"]["weight_version"],
        &json!("step-2"),
        &answer,
    );
    same(
        &answer["meta_info"]["weight_versions"],
        &json!([{"version": "step-2", "start": 0, "end": 1}]),
        &answer,
    );
    // The model is served under the path from then on.
    let (info, models) = (
        engine.get("/model_info").await.ok(),
        engine.get("/v1/models").await.ok(),
    );
    same(&models["data"][0]["id"], &info["model_path"], &models);
    let chat = engine
        .chat(&json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}))
        .await;
    same(&chat["metadata"]["weight_version"], &json!("step-2"), &chat);
    rename(engine, &before).await;
}

pub(crate) async fn a_version_can_be_renamed(engine: &Engine) {
    let before = current(engine).await;
    let request = engine.start("/generate", &engine.long("meanwhile"));
    engine.until_load(1, 0).await;
    let renamed = rename(engine, "another").await;
    same(
        &renamed,
        &json!({"success": true, "message": "Weight version updated to another", "new_version": "another"}),
        &renamed,
    );
    same(
        &engine.load().await.running,
        &1,
        &json!("the running request is not aborted"),
    );
    same(&current(engine).await.as_str(), &"another", &renamed);
    engine.abort(&json!({"rid": "meanwhile"})).await;
    request.answer().await.ok();
    rename(engine, &before).await;
}

pub(crate) async fn renaming_aborts_by_default(engine: &Engine) {
    let before = current(engine).await;
    let request = engine.start("/generate", &engine.long("hit"));
    engine.until_load(1, 0).await;
    engine
        .post("/update_weight_version", &json!({"new_version": before}))
        .await
        .ok();
    let answer = request.answer().await.ok();
    same(
        &answer["meta_info"]["finish_reason"]["type"],
        &json!("abort"),
        &answer,
    );
}

pub(crate) async fn an_update_waits_for_what_runs(engine: &Engine) {
    let before = current(engine).await;
    let mut body = engine.long("first");
    body["sampling_params"]["max_new_tokens"] = json!(200);
    let request = engine.start("/generate", &body);
    engine.until_load(1, 0).await;
    update(engine, "later", &json!({"flush_cache": false})).await;
    same(&engine.load().await.running, &0, &json!("it has ended"));
    let answer = request.answer().await.ok();
    let meta = &answer["meta_info"];
    same(
        &meta["finish_reason"],
        &json!({"type": "length", "length": 200}),
        &answer,
    );
    same(&meta["weight_version"], &json!(before), &answer);
    same(
        &meta["weight_versions"],
        &json!([{"version": before, "start": 0, "end": 200}]),
        &answer,
    );
    rename(engine, &before).await;
}

pub(crate) async fn a_request_across_an_update_names_both(engine: &Engine) {
    let before = current(engine).await;
    let mut body = engine.long("across");
    body["sampling_params"]["max_new_tokens"] = json!(400);
    let request = engine.start("/generate", &body);
    engine.until_load(1, 0).await;
    engine.pause("in_place").await;
    update(engine, "after", &json!({"flush_cache": false})).await;
    engine.resume().await;
    let answer = request.answer().await.ok();
    let meta = &answer["meta_info"];
    same(&meta["completion_tokens"], &json!(400), &answer);
    same(&meta["weight_version"], &json!("after"), &answer);
    let spans = meta["weight_versions"].as_array().unwrap();
    same(&spans.len(), &2, &answer);
    same(
        &(&spans[0]["version"], &spans[0]["start"]),
        &(&json!(before), &json!(0)),
        &answer,
    );
    same(
        &(&spans[1]["version"], &spans[1]["end"]),
        &(&json!("after"), &json!(400)),
        &answer,
    );
    same(&spans[0]["end"], &spans[1]["start"], &answer);
    rename(engine, &before).await;
}

pub(crate) async fn a_bad_path_changes_nothing(engine: &Engine) {
    let before = engine.get("/model_info").await.ok();
    let answer = engine
        .post(
            "/update_weights_from_disk",
            &json!({"model_path": "/no/such/model", "weight_version": "never"}),
        )
        .await;
    assert_eq!(answer.status, 400);
    let body = answer.json();
    same(&body["success"], &json!(false), &body);
    assert!(
        body["message"].as_str().unwrap().contains("/no/such/model"),
        "{body}"
    );
    same(
        &engine.get("/model_info").await.ok()["weight_version"],
        &before["weight_version"],
        &body,
    );
    same(
        &one_token(engine).await["meta_info"]["completion_tokens"],
        &json!(1),
        &body,
    );
}
