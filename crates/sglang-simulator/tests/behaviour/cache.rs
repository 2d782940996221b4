//! The prefix cache, as `cached_tokens` shows it.

use serde_json::{Value, json};

use crate::engine::{Engine, ids_of, same};

async fn generate(engine: &Engine, ids: &[u32], new_tokens: u32) -> Value {
    engine
        .generate(&json!({
            "input_ids": ids,
            "return_logprob": true,
            "sampling_params": {"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": true},
        }))
        .await
}

fn cached(answer: &Value) -> usize {
    usize::try_from(answer["meta_info"]["cached_tokens"].as_u64().unwrap()).unwrap()
}

pub(crate) async fn a_second_turn_finds_the_first(engine: &Engine) {
    let mut ids = engine.ids("A conversation that nobody had before: one, two, three.");
    let mut known = 0;
    for turn in 0..4 {
        let answer = generate(engine, &ids, 10).await;
        if turn == 0 {
            same(&cached(&answer), &0, &answer);
        } else {
            // All but the last token that was sampled, which was never computed on.
            same(&cached(&answer), &(known - 1), &answer);
            same(
                &answer["meta_info"]["cached_tokens_details"],
                &json!({"device": known - 1, "host": 0}),
                &answer,
            );
        }
        ids.extend(ids_of(&answer["output_ids"]));
        known = ids.len();
        ids.extend(engine.ids(" And then?"));
    }
}

pub(crate) async fn a_chat_finds_its_earlier_turns(engine: &Engine) {
    let mut messages = vec![
        json!({"role": "system", "content": "You are a helpful assistant."}),
        json!({"role": "user", "content": "Hello!"}),
    ];
    let mut before = 0;
    for turn in 0..3 {
        let answer = engine
            .chat(&json!({"model": "tiny", "messages": messages, "max_tokens": 6, "temperature": 0, "logprobs": true, "return_meta_info": true}))
            .await;
        let choice = &answer["choices"][0];
        let found = cached(choice);
        if turn > 0 {
            assert!(
                found >= before,
                "turn {turn}: {found} tokens found, the prompt before had {before}: {answer}"
            );
        }
        before = usize::try_from(answer["usage"]["prompt_tokens"].as_u64().unwrap()).unwrap();
        messages.push(choice["message"].clone());
        messages.push(json!({"role": "user", "content": "And then?"}));
    }
}

pub(crate) async fn an_equal_prompt_is_found_but_for_its_last_token(engine: &Engine) {
    let ids = engine.ids("Monday, Tuesday, Wednesday");
    same(
        &cached(&generate(engine, &ids, 1).await),
        &0,
        &json!("first"),
    );
    same(
        &cached(&generate(engine, &ids, 1).await),
        &(ids.len() - 1),
        &json!("second"),
    );
    let mut other = ids.clone();
    other[3] = 9;
    same(
        &cached(&generate(engine, &other, 1).await),
        &3,
        &json!("another, from the fourth token on"),
    );
}

pub(crate) async fn flushing_forgets(engine: &Engine) {
    let ids = engine.ids("January, February, March");
    generate(engine, &ids, 1).await;
    assert_eq!(
        engine.flush().await.text,
        "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the operation will not be performed.)\n"
    );
    same(
        &cached(&generate(engine, &ids, 1).await),
        &0,
        &json!("after the flush"),
    );
}

pub(crate) async fn flushing_a_busy_engine_fails(engine: &Engine) {
    let request = engine.start("/generate", &engine.long("busy"));
    engine.until_load(1, 0).await;
    let flushed = engine.post_nothing("/flush_cache").await;
    assert_eq!(
        (flushed.status, flushed.text.as_str()),
        (400, "Flush cache failed.\n")
    );
    engine.abort(&json!({"rid": "busy"})).await;
    request.answer().await.ok();
    engine.flush().await;
}

pub(crate) async fn flushing_can_wait(engine: &Engine) {
    let mut body = engine.long("busy");
    let request = engine.start("/generate", &body);
    engine.until_load(1, 0).await;
    let flushed = engine.post_nothing("/flush_cache?timeout=0.2").await;
    assert_eq!(
        (flushed.status, flushed.text.as_str()),
        (400, "Timed out waiting for idle state.")
    );
    engine.abort(&json!({"rid": "busy"})).await;
    request.answer().await.ok();

    body["sampling_params"]["max_new_tokens"] = json!(100);
    let request = engine.start("/generate", &body);
    engine.until_load(1, 0).await;
    assert_eq!(
        engine.post_nothing("/flush_cache?timeout=50").await.status,
        200
    );
    let answer = request.answer().await.ok();
    same(
        &answer["meta_info"]["finish_reason"],
        &json!({"type": "length", "length": 100}),
        &answer,
    );
}

pub(crate) async fn scoring_from_the_start_defeats_it(engine: &Engine) {
    let ids = engine.ids("The price of a shirt went up by 20 percent.");
    generate(engine, &ids, 1).await;
    let answer = engine
        .generate(&json!({"input_ids": ids, "return_logprob": true, "logprob_start_len": 0, "sampling_params": {"max_new_tokens": 1}}))
        .await;
    same(&cached(&answer), &0, &answer);
    same(
        &cached(&generate(engine, &ids, 1).await),
        &(ids.len() - 1),
        &answer,
    );
}

pub(crate) async fn an_aborted_generation_is_resumed_from_it(engine: &Engine) {
    let request = engine.start("/generate", &engine.long("partial"));
    engine.until_load(1, 0).await;
    engine.abort(&json!({"rid": "partial"})).await;
    let partial = request.answer().await.ok();
    let mut ids = engine.ids("A long story.");
    ids.extend(ids_of(&partial["output_ids"]));
    let resumed = generate(engine, &ids, 5).await;
    same(
        &resumed["meta_info"]["prompt_tokens"],
        &json!(ids.len()),
        &resumed,
    );
    same(&cached(&resumed), &(ids.len() - 1), &resumed);
}
