//! Streams of engines, event by event.

use std::time::Duration;

use rollout_session::ChatReply;
use serde_json::{Value, json};

use super::{Reader, StreamOptions};

const PLAIN: StreamOptions = StreamOptions {
    include_usage: false,
    log_probs: false,
    tools: true,
};

fn event(choice: Value) -> Vec<u8> {
    let event = json!({"id": "r1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice]});
    event.to_string().into_bytes()
}

fn delta(delta: Value, entries: &[f64]) -> Vec<u8> {
    let entries: Vec<Value> = entries
        .iter()
        .map(|value| json!({"token": "x", "bytes": [120], "logprob": value, "top_logprobs": []}))
        .collect();
    let log_probs = (!entries.is_empty()).then(|| json!({"content": entries}));
    event(
        json!({"index": 0, "delta": delta, "logprobs": log_probs, "finish_reason": null, "matched_stop": null}),
    )
}

fn finish(reason: &str) -> Vec<u8> {
    event(
        json!({"index": 0, "delta": {"reasoning_content": null}, "logprobs": null, "finish_reason": reason, "matched_stop": 2}),
    )
}

fn last(rest: Value) -> Vec<u8> {
    let mut event = json!({"id": "r1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": []});
    event
        .as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    event.to_string().into_bytes()
}

fn extension() -> Vec<u8> {
    last(
        json!({"sglext": {"input_ids": [1, 2], "output_ids": [[5, 6, 7]], "cached_tokens_details": {"device": 1, "host": 0}}}),
    )
}

fn usage() -> Vec<u8> {
    last(json!({"usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}}))
}

fn turn() -> Vec<Vec<u8>> {
    vec![
        delta(
            json!({"role": "assistant", "content": "", "reasoning_content": null}),
            &[],
        ),
        delta(json!({"reasoning_content": "hm"}), &[-0.5]),
        delta(
            json!({"reasoning_content": null, "content": "so"}),
            &[-0.25],
        ),
        delta(
            json!({"tool_calls": [{"id": "c1", "index": 0, "type": "function", "function": {"name": "f", "arguments": ""}}]}),
            &[],
        ),
        delta(
            json!({"tool_calls": [{"id": null, "index": 0, "type": "function", "function": {"name": null, "arguments": "{\"a\":"}}]}),
            &[],
        ),
        delta(
            json!({"tool_calls": [{"id": null, "index": 0, "type": "function", "function": {"name": null, "arguments": "1}"}}]}),
            &[],
        ),
        delta(
            json!({"tool_calls": [{"id": "c2", "index": 1, "type": "function", "function": {"name": "g", "arguments": "{}"}}]}),
            &[],
        ),
        delta(json!({"reasoning_content": null}), &[-0.125]),
        finish("tool_calls"),
        extension(),
        usage(),
    ]
}

fn reader(options: StreamOptions, events: &[Vec<u8>]) -> Reader {
    let mut reader = Reader::new(options);
    for event in events {
        assert!(reader.event(event).unwrap().is_none());
    }
    reader.event(b"[DONE]").unwrap();
    reader
}

#[test]
fn a_stream_becomes_the_reply_that_it_would_have_been() {
    let streamed = reader(PLAIN, &turn()).end().unwrap();
    let body = streamed.reply(Some("w3"), Duration::from_millis(1500));
    let reply: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        reply["choices"][0]["message"],
        json!({"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": [
            {"id": "c1", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
            {"id": "c2", "index": 1, "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ]})
    );
    assert_eq!(reply["usage"]["total_tokens"], 5);
    let generation = ChatReply::parse(&body, None, None).unwrap().generation;
    assert_eq!(generation.prompt_ids, [1, 2]);
    assert_eq!(generation.output_ids, [5, 6, 7]);
    assert_eq!(generation.log_probs, [-0.5, -0.25, -0.125]);
    assert_eq!(generation.cached_tokens, 1);
    assert_eq!(generation.weight_version.as_deref(), Some("w3"));
    assert_eq!(generation.engine_seconds, Some(1.5));
}

#[test]
fn a_client_gets_deltas_at_once_and_the_end_at_the_end() {
    let mut reader = reader(PLAIN, &turn());
    let told = reader.take_told();
    let told = std::str::from_utf8(&told).unwrap();
    assert_eq!(told.matches("data: ").count(), 7, "{told}");
    assert!(!told.contains("logprob\""), "{told}");
    assert!(!told.contains("input_ids"), "{told}");
    assert!(!told.contains("\"finish_reason\":\"tool_calls\""), "{told}");
    let end = reader.end().unwrap().end.concat();
    let end = String::from_utf8(end).unwrap();
    assert!(end.starts_with("data: {\"id\":\"r1\""), "{end}");
    assert!(end.contains("\"finish_reason\":\"tool_calls\""));
    assert!(!end.contains("usage"));
    assert!(end.ends_with("\n\ndata: [DONE]\n\n"));
}

#[test]
fn log_probabilities_and_usage_come_when_they_are_asked_for() {
    let options = StreamOptions {
        include_usage: true,
        log_probs: true,
        tools: true,
    };
    let mut reader = reader(options, &turn());
    let told = reader.take_told();
    let told = std::str::from_utf8(&told).unwrap();
    assert_eq!(told.matches("\"logprob\":").count(), 3, "{told}");
    let end = String::from_utf8(reader.end().unwrap().end.concat()).unwrap();
    assert!(
        end.contains("\"choices\":[],\"usage\":{\"prompt_tokens\":2"),
        "{end}"
    );
}

fn contents(parts: &[&str], with_call: bool, tools: bool) -> (String, Value) {
    let mut events: Vec<Vec<u8>> = parts
        .iter()
        .map(|part| delta(json!({"content": part}), &[]))
        .collect();
    if with_call {
        events.push(delta(
            json!({"tool_calls": [{"id": "c1", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
            &[],
        ));
        events.push(delta(json!({"content": "\n"}), &[]));
    }
    events.push(finish("stop"));
    let options = StreamOptions { tools, ..PLAIN };
    let mut reader = reader(options, &events);
    let told = reader.take_told();
    let told = std::str::from_utf8(&told).unwrap().split("data: ").skip(1);
    let told = told
        .filter_map(|event| {
            let event: Value = serde_json::from_str(event.trim()).unwrap();
            let content = &event["choices"][0]["delta"]["content"];
            content.as_str().map(str::to_owned)
        })
        .collect();
    let streamed = reader.end().unwrap();
    let body = streamed.reply(None, Duration::ZERO);
    let reply: Value = serde_json::from_slice(&body).unwrap();
    (told, reply["choices"][0]["message"]["content"].clone())
}

#[test]
fn blanks_before_a_call_are_no_content() {
    for (parts, with_call, tools, expected) in [
        (
            &["I look", " it up.", "\n"][..],
            true,
            true,
            "I look it up.",
        ),
        (&["\n\n"], true, true, ""),
        (&["a \n", " b\t"], true, true, "a \n b"),
        (&["a \n", " b\t"], false, true, "a \n b\t"),
        (&["\n", "\n"], false, true, "\n\n"),
        (&["a\n"], false, false, "a\n"),
    ] {
        let (told, recorded) = contents(parts, with_call, tools);
        assert_eq!(told, expected, "{parts:?}");
        assert_eq!(recorded, expected, "{parts:?}");
    }
}

#[test]
fn a_stream_without_its_end_is_none() {
    let mut cut = Reader::new(PLAIN);
    cut.event(&turn()[0]).unwrap();
    let error = cut.end().unwrap_err().to_string();
    assert!(error.contains("broke off"), "{error}");
    let events = &turn()[..8];
    let error = reader(PLAIN, events).end().unwrap_err().to_string();
    assert!(error.contains("why it ended"), "{error}");
}

#[test]
fn counts_that_lie_are_seen_by_the_checks_of_every_reply() {
    let mut events = turn();
    events.remove(7);
    let streamed = reader(PLAIN, &events).end().unwrap();
    let body = streamed.reply(None, Duration::ZERO);
    let error = ChatReply::parse(&body, None, None).unwrap_err().to_string();
    assert_eq!(error, "len(output_token_logprobs)=2 != completion_tokens=3");
    let mut events = turn();
    events.remove(9);
    let streamed = reader(PLAIN, &events).end().unwrap();
    let body = streamed.reply(None, Duration::ZERO);
    assert!(ChatReply::parse(&body, None, None).is_err());
}

#[test]
fn an_error_of_the_engine_keeps_its_status() {
    let mut reader = Reader::new(PLAIN);
    let event = br#"{"error": {"message": "full", "type": "SERVICE_UNAVAILABLE", "code": 503}}"#;
    let reply = reader.event(event).unwrap().unwrap();
    assert_eq!(reply.status, 503);
    let event = br#"{"error": {"message": "?"}}"#;
    assert_eq!(reader.event(event).unwrap().unwrap().status, 502);
}

#[test]
fn nonsense_is_a_bad_reply() {
    for event in [
        &b"{"[..],
        b"\xff",
        b"[]",
        br#"{"choices": [{"index": 0, "delta": {"content": 7}}]}"#,
        br#"{"choices": [{"index": 1, "delta": {}}]}"#,
        br#"{"choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {}}]}"#,
    ] {
        let error = Reader::new(PLAIN).event(event).unwrap_err();
        assert_eq!(error.code(), "engine_reply");
    }
}
