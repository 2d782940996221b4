//! Server-sent events: how chunks add up to the answer without a stream.

use serde_json::{Value, json};

use crate::engine::{Engine, ids_of, same};

fn request(engine: &Engine, stream: bool) -> Value {
    json!({
        "rid": "stream",
        "input_ids": engine.ids("The quick brown fox"),
        "return_logprob": true,
        "stream": stream,
        "sampling_params": {"max_new_tokens": 12, "temperature": 0, "ignore_eos": true},
    })
}

pub(crate) async fn generation_is_cumulative(engine: &Engine) {
    let events = engine.events("/generate", &request(engine, true)).await;
    assert!(events.len() > 1, "{events:?}");
    let mut before: Vec<u32> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let ids = ids_of(&event["output_ids"]);
        assert!(ids.starts_with(&before), "{event}");
        let meta = &event["meta_info"];
        same(&meta["completion_tokens"], &json!(ids.len()), event);
        same(
            &meta["output_token_logprobs_length"],
            &json!(ids.len()),
            event,
        );
        same(&meta["id"], &json!("stream"), event);
        same(
            &meta["finish_reason"].is_null(),
            &(index + 1 < events.len()),
            event,
        );
        before = ids;
    }
}

pub(crate) async fn generation_ends_like_without_a_stream(engine: &Engine) {
    let whole = engine.generate(&request(engine, false)).await;
    let events = engine.events("/generate", &request(engine, true)).await;
    let last = events.last().unwrap();
    same(&last["output_ids"], &whole["output_ids"], last);
    same(&last["text"], &whole["text"], last);
    same(
        &last["meta_info"]["finish_reason"],
        &whole["meta_info"]["finish_reason"],
        last,
    );
}

pub(crate) async fn a_batch_tells_its_parts_apart(engine: &Engine) {
    let mut body = request(engine, true);
    body["rid"] = json!(["left", "right"]);
    body["input_ids"] = json!([engine.ids("one"), engine.ids("two")]);
    let events = engine.events("/generate", &body).await;
    for (index, rid) in ["left", "right"].iter().enumerate() {
        let own: Vec<&Value> = events
            .iter()
            .filter(|event| event["index"] == json!(index))
            .collect();
        let last = own.last().unwrap();
        same(&last["meta_info"]["id"], &json!(rid), last);
        same(
            &last["meta_info"]["finish_reason"],
            &json!({"type": "length", "length": 12}),
            last,
        );
    }
}

fn chat(more: &Value) -> Value {
    let mut body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": 12, "temperature": 0, "ignore_eos": true,
    });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

pub(crate) async fn a_chat_adds_up(engine: &Engine) {
    let whole = engine.chat(&chat(&json!({}))).await;
    let body = chat(&json!({"stream": true, "stream_options": {"include_usage": true}}));
    let events = engine.events("/v1/chat/completions", &body).await;
    same(
        &events[0]["choices"][0]["delta"]["role"],
        &json!("assistant"),
        &events[0],
    );
    let content: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    same(
        &json!(content),
        &whole["choices"][0]["message"]["content"],
        &whole,
    );
    let finished: Vec<&Value> = events
        .iter()
        .map(|event| &event["choices"][0]["finish_reason"])
        .filter(|reason| !reason.is_null())
        .collect();
    assert_eq!(finished, [&json!("length")]);
    let usage = events.last().unwrap();
    same(&usage["choices"], &json!([]), usage);
    for field in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        same(&usage["usage"][field], &whole["usage"][field], usage);
    }
    for event in &events {
        same(&event["object"], &json!("chat.completion.chunk"), event);
        same(&event["id"], &events[0]["id"], event);
    }
}

pub(crate) async fn a_chat_with_log_probs(engine: &Engine) {
    let events = engine
        .events(
            "/v1/chat/completions",
            &chat(&json!({"stream": true, "logprobs": true})),
        )
        .await;
    let entries = events
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array())
        .map(Vec::len)
        .sum::<usize>();
    assert_eq!(entries, 12, "{events:?}");
}

pub(crate) async fn a_chat_with_ids(engine: &Engine) {
    let ids = json!({"return_input_ids_in_sglext": true, "return_output_ids_in_sglext": true, "logprobs": true});
    let whole = engine.chat(&chat(&ids)).await;
    let mut streamed = chat(&ids);
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    // It may end by itself: then the last token has no text, and its log-probability comes all the same.
    streamed["max_tokens"] = json!(300);
    streamed["ignore_eos"] = json!(false);
    let events = engine.events("/v1/chat/completions", &streamed).await;
    let [.., extension, usage] = &events[..] else {
        panic!("{events:?}")
    };
    same(&extension["choices"], &json!([]), extension);
    same(
        &extension["sglext"]["input_ids"],
        &whole["sglext"]["input_ids"],
        extension,
    );
    let output = ids_of(&extension["sglext"]["output_ids"][0]);
    let log_probs = events
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array())
        .map(Vec::len)
        .sum::<usize>();
    assert_eq!(log_probs, output.len(), "{events:?}");
    same(
        &usage["usage"]["completion_tokens"],
        &json!(output.len()),
        usage,
    );
}

pub(crate) async fn errors_arrive_in_the_stream(engine: &Engine) {
    let body = json!({"input_ids": vec![5; 5000], "stream": true, "sampling_params": {"max_new_tokens": 1}});
    let events = engine.events("/generate", &body).await;
    assert_eq!(
        events,
        [json!({"error": {
            "message": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
            "type": "invalid_request_error", "code": 400, "retryable": false,
        }})]
    );
}

pub(crate) async fn ids_are_refused_in_a_streamed_chat(engine: &Engine) {
    for (field, route) in [
        ("return_prompt_token_ids", ""),
        ("return_token_ids", " on /v1/chat/completions"),
        ("return_meta_info", ""),
    ] {
        let answer = engine
            .post(
                "/v1/chat/completions",
                &chat(&json!({"stream": true, field: true})),
            )
            .await;
        assert_eq!(answer.status, 400, "{field}");
        let message = format!(
            "{field} is not supported with streaming{route}. Please set stream=false when using {field}=true."
        );
        assert_eq!(
            answer.json(),
            json!({"object": "error", "message": message, "type": "BadRequest", "param": null, "code": 400})
        );
    }
}
