//! Streamed answers of a session, from engines whose stream cannot be recorded.

use std::time::Duration;

use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind, Replies, Script};

use crate::support::{Bed, engine_config, eventually, slow_engine_config, user};

pub(crate) fn calling() -> sglang_simulator::Config {
    let mut config = engine_config();
    let script = "
- match: weather
  reply:
    content: I look it up.
    tool_calls:
      - {name: get_weather, arguments: {city: Paris}}
      - {name: get_weather, arguments: {city: Rome}}
- match: '.*'
  reply: {content: hello}
";
    config.replies = Replies {
        script: Some(Script {
            inline: Some(script.to_owned()),
            ..Script::default()
        }),
        ..Replies::default()
    };
    config
}

/// Engines that do not say whether they stream ids.
async fn bed(adjust: impl FnOnce(&mut rollout_router::Config)) -> Bed {
    let bed = Bed::with(vec![calling()], adjust).await;
    let silent = Fault::new("/model_info", FaultKind::Status500);
    bed.engines[0].simulator.add_fault(silent);
    bed
}

pub(crate) fn chunks(text: &str) -> Vec<Value> {
    let events = text.split("\n\n").filter(|event| !event.is_empty());
    let data = events.filter(|event| !event.starts_with(':'));
    data.map(|event| event.strip_prefix("data: ").unwrap())
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

pub(crate) fn body(text: &str, extra: Value) -> Value {
    let tools = json!([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]);
    let mut body = json!({"model": "m", "messages": [user(text)], "stream": true, "tools": tools});
    body.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn one_chunk_carries_the_message_as_miles_sends_it() {
    let bed = bed(|_| {}).await;
    let id = bed.session(json!({})).await;
    let answer = bed.chat(&id, body("hi", json!({}))).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.headers["content-type"],
        "text/event-stream; charset=utf-8"
    );
    assert_eq!(answer.headers["cache-control"], "no-cache");
    assert!(answer.text().ends_with("\n\ndata: [DONE]\n\n"));
    let [chunk] = &chunks(answer.text())[..] else {
        panic!("{}", answer.text())
    };
    assert_eq!(chunk["object"], "chat.completion.chunk");
    assert_eq!(
        chunk["choices"][0]["delta"],
        json!({"role": "assistant", "content": "hello"})
    );
    assert_eq!(chunk["choices"][0]["finish_reason"], "stop");
    assert!(chunk["usage"]["total_tokens"].as_u64().unwrap() > 0);
    let keys: Vec<&String> = chunk.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["id", "object", "created", "model", "choices", "usage"]
    );
    assert_eq!(bed.samples(&id, json!({})).await.samples.len(), 1);
}

#[tokio::test]
async fn usage_has_a_chunk_of_its_own_when_it_is_asked_for() {
    let bed = bed(|_| {}).await;
    let id = bed.session(json!({})).await;
    let asked = json!({"stream_options": {"include_usage": true}});
    let answer = bed.chat(&id, body("hi", asked)).await;
    let chunks = chunks(answer.text());
    assert_eq!(chunks.len(), 2);
    assert!(chunks[0].get("usage").is_none());
    assert_eq!(chunks[1]["choices"], json!([]));
    assert!(chunks[1]["usage"]["completion_tokens"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn tool_calls_are_numbered() {
    let bed = bed(|_| {}).await;
    let id = bed.session(json!({})).await;
    let answer = bed.chat(&id, body("weather?", json!({}))).await;
    let chunk = &chunks(answer.text())[0];
    let calls = chunk["choices"][0]["delta"]["tool_calls"]
        .as_array()
        .unwrap();
    assert_eq!(calls.len(), 2);
    for (index, call) in calls.iter().enumerate() {
        assert_eq!(call["index"], index);
        assert_eq!(call["function"]["name"], "get_weather");
    }
    assert_eq!(chunk["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn a_long_generation_is_kept_alive_with_comments() {
    let bed = bed(|config| config.times.keep_alive = Duration::from_millis(20)).await;
    let slow = Fault::new("/v1/chat/completions", FaultKind::SlowFirstByte).seconds(200.0);
    bed.engines[0].simulator.add_fault(slow);
    let id = bed.session(json!({})).await;
    let answer = bed.chat(&id, body("hi", json!({}))).await;
    assert!(
        answer
            .text()
            .starts_with(": keep-alive\n\n: keep-alive\n\n"),
        "{}",
        answer.text()
    );
    assert_eq!(
        chunks(answer.text())[0]["choices"][0]["delta"]["content"],
        "hello"
    );
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn an_early_error_keeps_its_status() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let early = bed.chat(&id, json!({"messages": [], "stream": true})).await;
    assert_eq!(early.status, 400);
    assert_eq!(early.headers["content-type"], "application/json");
    for wrong in [
        json!({"stream": "yes"}),
        json!({"stream": 1}),
        json!({"stream_options": true}),
        json!({"stream_options": {"include_usage": "yes"}}),
    ] {
        let answer = bed.chat(&id, body("hi", wrong.clone())).await;
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(answer.error().contains("must be"), "{}", answer.error());
    }
}

#[tokio::test]
async fn a_late_error_is_an_event_that_ends_the_stream() {
    let mut engine = slow_engine_config();
    engine.server.tool_call_parser = None;
    let bed = Bed::with(vec![engine], |config| {
        config.times.keep_alive = Duration::from_millis(20);
    })
    .await;
    let simulator = &bed.engines[0].simulator;
    let id = bed.session(json!({})).await;
    let endless = json!({"max_tokens": 20_000, "ignore_eos": true});
    let mut stream = bed.chat_stream(&id, body("hi", endless)).await;
    assert_eq!(stream.next().await.as_deref(), Some(": keep-alive\n\n"));
    eventually("the request runs", || simulator.state().running == 1).await;
    simulator.kill();
    let mut rest = String::new();
    while let Some(piece) = stream.next().await {
        rest.push_str(&piece);
    }
    let event = &chunks(&rest)[0];
    let message = event["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("backend transport error"), "{event}");
    assert!(!rest.contains("[DONE]"));
}
