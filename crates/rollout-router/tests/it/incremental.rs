//! Streams that reach the client as the engine makes them, and are recorded.

use std::time::Duration;

use rollout_session::SampleStatus;
use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind};

use crate::stream::{body, calling, chunks};
use crate::support::{
    Bed, JOB, Pieces, engine_config, eventually, in_time, slow_engine_config, user,
};

const CHAT: &str = "/v1/chat/completions";

fn request(extra: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [user("hi")], "stream": true, "max_tokens": 40, "ignore_eos": true, "temperature": 0.0});
    body.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    body
}

fn endless() -> Value {
    request(json!({"max_tokens": 20_000}))
}

async fn rest(mut stream: Pieces) -> String {
    in_time(async {
        let mut rest = String::new();
        while let Some(piece) = stream.next().await {
            rest.push_str(&piece);
        }
        rest
    })
    .await
}

async fn records(bed: &Bed, id: &str) -> Vec<Value> {
    let view = bed.control().get(&format!("/sessions/{id}")).await.ok();
    view["records"].as_array().unwrap().clone()
}

fn text_of(chunks: &[Value], field: &str) -> String {
    let deltas = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]);
    deltas.filter_map(|delta| delta[field].as_str()).collect()
}

#[tokio::test]
async fn deltas_come_while_the_engine_works() {
    let bed = Bed::with(vec![slow_engine_config()], |_| {}).await;
    let id = bed.session(json!({})).await;
    let mut stream = bed.chat_stream(&id, endless()).await;
    let mut told = String::new();
    while text_of(&chunks(&told), "content").len() < 30 {
        told.push_str(&in_time(stream.next()).await.unwrap());
    }
    assert_eq!(bed.engines[0].simulator.state().running, 1);
    let first = &chunks(&told)[0];
    assert_eq!(first["object"], "chat.completion.chunk");
    assert_eq!(first["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(first["choices"][0]["finish_reason"], Value::Null);
    assert!(!told.contains("logprob\""), "{told}");
    drop(stream);
    eventually("it is gone", || {
        bed.engines[0].simulator.state().running == 0
    })
    .await;
    assert!(records(&bed, &id).await.is_empty());
}

#[tokio::test]
async fn a_streamed_turn_leaves_the_record_of_one_in_one_piece() {
    let bed = Bed::start().await;
    let mut collected = Vec::new();
    for stream in [true, false] {
        let id = bed.session(json!({})).await;
        let answer = bed.chat(&id, request(json!({"stream": stream}))).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        let record = records(&bed, &id).await.remove(0);
        assert_eq!(record["request"]["stream"], stream);
        let choice = &record["response"]["choices"][0];
        assert_eq!(choice["finish_reason"], "length");
        if stream {
            let chunks = chunks(answer.text());
            assert_eq!(
                json!(text_of(&chunks, "content")),
                choice["message"]["content"]
            );
            let finished = chunks
                .iter()
                .filter(|chunk| chunk["choices"][0]["finish_reason"] == "length");
            assert_eq!(finished.count(), 1);
        }
        let sample = bed.samples(&id, json!({})).await.samples.remove(0);
        collected.push((choice["message"].clone(), sample));
    }
    let (streamed, whole) = (&collected[0], &collected[1]);
    assert_eq!(streamed.0, whole.0);
    assert_eq!(streamed.1.tokens, whole.1.tokens);
    assert_eq!(streamed.1.rollout_log_probs, whole.1.rollout_log_probs);
    assert_eq!(streamed.1.loss_mask, whole.1.loss_mask);
    assert_eq!(streamed.1.weight_versions, whole.1.weight_versions);
    assert_eq!(streamed.1.response, whole.1.response);
    assert_eq!(streamed.1.status, SampleStatus::Truncated);
}

#[tokio::test]
async fn a_streamed_conversation_is_one_sample() {
    let bed = Bed::with(vec![calling()], |_| {}).await;
    let id = bed.session(json!({})).await;
    let usage = json!({"stream_options": {"include_usage": true}});
    let answer = bed.chat(&id, body("weather?", usage.clone())).await;
    let first = chunks(answer.text());
    assert_eq!(text_of(&first, "content"), "I look it up.");
    let mut calls: Vec<Value> = Vec::new();
    for chunk in &first {
        for piece in chunk["choices"][0]["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let index = usize::try_from(piece["index"].as_u64().unwrap()).unwrap();
            if index == calls.len() {
                calls.push(piece.clone());
                continue;
            }
            let more = piece["function"]["arguments"].as_str().unwrap();
            let before = calls[index]["function"]["arguments"].as_str().unwrap();
            calls[index]["function"]["arguments"] = json!(format!("{before}{more}"));
        }
    }
    assert_eq!(calls.len(), 2);
    for (call, city) in calls.iter().zip(["Paris", "Rome"]) {
        assert_eq!(call["function"]["name"], "get_weather");
        let arguments = call["function"]["arguments"].as_str().unwrap();
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        assert_eq!(arguments, json!({"city": city}));
    }
    let [.., end, last] = &first[..] else {
        panic!("{first:?}")
    };
    assert_eq!(end["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["completion_tokens"].as_u64().unwrap() > 0);
    assert!(answer.text().ends_with("\n\ndata: [DONE]\n\n"));

    let recorded = &records(&bed, &id).await[0]["response"]["choices"][0]["message"];
    assert_eq!(recorded["tool_calls"], json!(calls));
    let mut second = body("weather?", usage);
    let mut messages = vec![
        user("weather?"),
        json!({"role": "assistant", "content": "I look it up.", "tool_calls": calls}),
    ];
    for call in &calls {
        messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "sunny"}));
    }
    second["messages"] = json!(messages);
    let answer = bed.chat(&id, second).await;
    assert_eq!(text_of(&chunks(answer.text()), "content"), "hello");
    let samples = bed.samples(&id, json!({})).await.samples;
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0].status, SampleStatus::Completed);
}

#[tokio::test]
async fn reasoning_is_streamed_apart() {
    let mut config = calling();
    config.server.reasoning_parser = Some("qwen3".to_owned());
    config.replies.script = Some(sglang_simulator::Script {
        inline: Some(
            "[{match: '.*', reply: {reasoning_content: let me think, content: done}}]".to_owned(),
        ),
        ..sglang_simulator::Script::default()
    });
    let bed = Bed::with(vec![config], |_| {}).await;
    let id = bed.session(json!({})).await;
    let answer = bed.chat(&id, body("hi", json!({}))).await;
    let chunks = chunks(answer.text());
    assert_eq!(text_of(&chunks, "reasoning_content").trim(), "let me think");
    assert_eq!(text_of(&chunks, "content").trim(), "done");
    assert_eq!(bed.samples(&id, json!({})).await.samples.len(), 1);
}

#[tokio::test]
async fn log_probabilities_are_told_when_they_are_asked_for() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let answer = bed.chat(&id, request(json!({"logprobs": true}))).await;
    let entries = chunks(answer.text())
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array())
        .map(Vec::len)
        .sum::<usize>();
    assert_eq!(entries, 40);
}

#[tokio::test]
async fn an_engine_that_dies_in_the_middle_ends_the_stream_with_an_error() {
    let bed = Bed::with(vec![slow_engine_config()], |_| {}).await;
    let id = bed.session(json!({})).await;
    let mut stream = bed.chat_stream(&id, endless()).await;
    let begin = stream.next().await.unwrap();
    assert!(begin.contains("assistant"), "{begin}");
    bed.engines[0].simulator.kill();
    let rest = rest(stream).await;
    let told = chunks(&rest);
    let message = told.last().unwrap()["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("backend transport error"), "{message}");
    assert!(!rest.contains("[DONE]"), "{rest}");
    assert!(records(&bed, &id).await.is_empty());
}

#[tokio::test]
async fn a_cut_stream_ends_with_an_error() {
    let bed = Bed::start().await;
    let simulator = &bed.engines[0].simulator;
    simulator.add_fault(Fault::new(CHAT, FaultKind::CutBody).times(1));
    let id = bed.session(json!({})).await;
    let answer = bed.chat(&id, request(json!({}))).await;
    assert!(
        answer.text().contains("backend transport error"),
        "{}",
        answer.text()
    );
    assert!(!answer.text().contains("[DONE]"));
    assert!(records(&bed, &id).await.is_empty());
    let again = bed.chat(&id, request(json!({}))).await;
    assert!(again.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(records(&bed, &id).await.len(), 1);
}

#[tokio::test]
async fn a_stream_whose_counts_lie_is_an_error_and_the_engine_is_asked_for_whole_answers() {
    for fault in [FaultKind::WrongCounts, FaultKind::MissingIds] {
        let bed = Bed::start().await;
        let simulator = &bed.engines[0].simulator;
        simulator.add_fault(Fault::new(CHAT, fault).times(1));
        let id = bed.session(json!({})).await;
        let answer = bed.chat(&id, request(json!({}))).await;
        let told = chunks(answer.text());
        assert!(!text_of(&told, "content").is_empty());
        let error = &told.last().unwrap()["error"];
        assert_eq!(error["code"], "engine_reply", "{fault:?} {told:?}");
        assert!(!answer.text().contains("[DONE]"));
        let ends = told
            .iter()
            .filter(|chunk| chunk["choices"][0]["finish_reason"].is_string());
        assert_eq!(ends.count(), 0, "nothing says that the answer is whole");
        assert!(records(&bed, &id).await.is_empty());

        let again = bed.chat(&id, request(json!({}))).await;
        assert!(again.text().ends_with("data: [DONE]\n\n"));
        let record = &records(&bed, &id).await[0];
        assert_eq!(record["request"]["stream"], false);
    }
}

#[tokio::test]
async fn an_engine_without_a_parser_is_asked_for_whole_answers() {
    let mut config = engine_config();
    config.server.tool_call_parser = None;
    let bed = Bed::with(vec![config], |_| {}).await;
    let id = bed.session(json!({})).await;
    let answer = bed.chat(&id, request(json!({}))).await;
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(records(&bed, &id).await[0]["request"]["stream"], false);
}

#[tokio::test]
async fn a_refusal_of_the_engine_keeps_its_status() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let answer = bed.chat(&id, request(json!({"temperature": -1.0}))).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    bed.engines[0]
        .simulator
        .add_fault(Fault::new(CHAT, FaultKind::Status503).times(1));
    let answer = bed.chat(&id, request(json!({}))).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(records(&bed, &id).await.is_empty());
}

#[tokio::test]
async fn a_fence_ends_a_stream_and_records_what_there_is() {
    let bed = Bed::with(vec![slow_engine_config()], |_| {}).await;
    let id = bed.session(json!({"job": JOB})).await;
    let mut stream = bed.chat_stream(&id, endless()).await;
    stream.next().await.unwrap();
    let fence = in_time(bed.control().post("/fence", json!({"job": JOB})))
        .await
        .ok();
    assert_eq!(fence["engines"][0]["aborted"], 1, "{fence}");
    assert_eq!(bed.engines[0].simulator.state().running, 0);
    let rest = rest(stream).await;
    let told = chunks(&rest);
    let last = &told.last().unwrap()["choices"][0];
    assert_eq!(last["finish_reason"], "abort", "{rest}");
    assert!(rest.ends_with("data: [DONE]\n\n"));
    let samples = bed.samples(&id, json!({})).await.samples;
    assert_eq!(samples[0].status, SampleStatus::Aborted);
    let refused = bed.chat(&id, endless()).await;
    assert_eq!(refused.status, 410);
    assert_eq!(refused.headers["x-should-retry"], "false");
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_stream_with_an_error() {
    let bed = Bed::with(vec![slow_engine_config()], |_| {}).await;
    let id = bed.session(json!({})).await;
    let mut stream = bed.chat_stream(&id, endless()).await;
    stream.next().await.unwrap();
    bed.control().delete(&format!("/sessions/{id}")).await;
    let rest = rest(stream).await;
    let told = chunks(&rest);
    assert_eq!(
        told.last().unwrap()["error"]["code"],
        "rollout_closed",
        "{rest}"
    );
    assert!(!rest.contains("[DONE]"));
    eventually("nothing runs", || {
        bed.engines[0].simulator.state().running == 0
    })
    .await;
}

#[tokio::test]
async fn a_stream_is_kept_alive_before_its_first_delta() {
    let bed = Bed::with(vec![engine_config()], |config| {
        config.times.keep_alive = Duration::from_millis(20);
    })
    .await;
    let slow = Fault::new(CHAT, FaultKind::SlowFirstByte).seconds(200.0);
    bed.engines[0].simulator.add_fault(slow);
    let id = bed.session(json!({})).await;
    let answer = bed.chat(&id, request(json!({}))).await;
    assert!(
        answer
            .text()
            .starts_with(": keep-alive\n\n: keep-alive\n\n")
    );
    assert!(!text_of(&chunks(answer.text()), "content").is_empty());
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(records(&bed, &id).await[0]["request"]["stream"], true);
}
