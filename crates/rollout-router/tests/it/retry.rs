//! A request that says that it is a retry gets the answer of the first; equal requests without that word are different turns.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{
    Bed, Client, Served, engine_config, eventually, raw_post, slow_engine_config, user,
};

fn body() -> Value {
    json!({"messages": [user("hi")], "max_tokens": 200, "ignore_eos": true, "temperature": 1.0})
}

fn path(id: &str) -> String {
    format!("/sessions/{id}/v1/chat/completions")
}

fn retrying(bed: &Bed) -> Client {
    bed.agent().header("x-stainless-retry-count", "1")
}

async fn turns(bed: &Bed, id: &str) -> usize {
    let view = bed.control().get(&format!("/sessions/{id}")).await.ok();
    view["records"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_retry_joins_the_request_that_is_still_open() {
    let mut config = engine_config();
    config.time_scale = 10;
    let bed = Bed::with(vec![config], |_| {}).await;
    let id = bed.session(json!({})).await;
    let path = path(&id);
    let (agent, retry_client) = (bed.agent(), retrying(&bed));
    let first = agent.post(&path, body());
    let second = async {
        eventually("the first runs", || {
            bed.engines[0].simulator.state().running == 1
        })
        .await;
        retry_client.post(&path, body()).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.ok()["id"], second.ok()["id"]);
    assert_eq!(turns(&bed, &id).await, 1);
}

#[tokio::test]
async fn equal_requests_without_evidence_are_siblings() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let path = path(&id);
    let agent = bed.agent();
    let first = agent.post(&path, body());
    let second = agent.post(&path, body());
    let (first, second) = tokio::join!(first, second);
    assert_ne!(first.ok()["id"], second.ok()["id"]);
    assert_eq!(turns(&bed, &id).await, 2);
    let collected = bed.samples(&id, json!({"split": true})).await;
    assert_eq!(collected.session_metadata["superseded_turns"], 1);
    assert_eq!(collected.samples.len(), 1);
}

#[tokio::test]
async fn a_key_names_one_request() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let keyed = bed.agent().header("idempotency-key", "k1");
    let first = keyed.post(&path(&id), body()).await.ok();
    let again = keyed.post(&path(&id), body()).await.ok();
    assert_eq!(first["id"], again["id"]);
    assert_eq!(
        first["choices"][0]["message"],
        again["choices"][0]["message"]
    );
    assert_eq!(turns(&bed, &id).await, 1);
    let other = bed.agent().header("idempotency-key", "k2");
    assert_ne!(other.post(&path(&id), body()).await.ok()["id"], first["id"]);
    let mut longer = body();
    longer["max_tokens"] = json!(201);
    assert_ne!(keyed.post(&path(&id), longer).await.ok()["id"], first["id"]);
    assert_eq!(turns(&bed, &id).await, 3);
}

#[tokio::test]
async fn a_retry_of_an_answer_that_was_lost_on_its_way_gets_the_recorded_turn() {
    let bed = Bed::start().await;
    for stream in [false, true] {
        let id = bed.session(json!({})).await;
        let mut body = body();
        body["stream"] = json!(stream);
        let first = bed.agent().post(&path(&id), body.clone()).await;
        assert_eq!(first.status, 200);
        let again = retrying(&bed).post(&path(&id), body.clone()).await;
        assert_eq!(again.status, 200);
        assert_eq!(content(first.text()), content(again.text()));
        assert_eq!(again.text().contains("[DONE]"), stream);
        assert_eq!(turns(&bed, &id).await, 1);
        // The record has no log-probabilities in the client's form.
        body["logprobs"] = json!(true);
        bed.agent().post(&path(&id), body.clone()).await;
        let anew = retrying(&bed).post(&path(&id), body).await;
        assert!(anew.text().contains("\"logprob\":"));
        assert_eq!(turns(&bed, &id).await, 3);
    }
}

/// The text of an answer, streamed or not.
fn content(text: &str) -> String {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    if text.starts_with('{') {
        let content = &parsed(text)["choices"][0]["message"]["content"];
        return content.as_str().unwrap().to_owned();
    }
    let events = text
        .split("\n\n")
        .map(|event| event.trim_start_matches("data: "));
    let deltas = events.map(|event| parsed(event)["choices"][0]["delta"]["content"].clone());
    deltas
        .filter_map(|delta| delta.as_str().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn nobody_knows_whose_answer_a_retry_wants_when_the_same_was_asked_twice() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let first = bed.agent().post(&path(&id), body()).await.ok();
    let second = bed.agent().post(&path(&id), body()).await.ok();
    let retry = retrying(&bed).post(&path(&id), body()).await.ok();
    assert_ne!(retry["id"], first["id"]);
    assert_ne!(retry["id"], second["id"]);
    assert_eq!(turns(&bed, &id).await, 3);
}

#[tokio::test]
async fn a_retry_joins_a_stream_from_its_start() {
    let mut config = engine_config();
    config.time_scale = 10;
    let bed = Bed::with(vec![config], |_| {}).await;
    let id = bed.session(json!({})).await;
    let mut body = body();
    body["stream"] = json!(true);
    let mut first = bed.chat_stream(&id, body.clone()).await;
    let mut told = first.next().await.unwrap();
    let second = retrying(&bed).post(&path(&id), body).await;
    while let Some(piece) = first.next().await {
        told.push_str(&piece);
    }
    assert!(told.ends_with("data: [DONE]\n\n"), "{told}");
    assert_eq!(second.text(), told);
    assert_eq!(turns(&bed, &id).await, 1);
}

#[tokio::test]
async fn a_retry_after_the_first_was_aborted_generates_anew() {
    let bed = Bed::with(vec![slow_engine_config()], |_| {}).await;
    let served = Served::start(&bed.router).await;
    let simulator = &bed.engines[0].simulator;
    let id = bed.session(json!({})).await;
    let mut stream = TcpStream::connect(served.agents).await.unwrap();
    let mut long = body();
    long["max_tokens"] = json!(20_000);
    stream
        .write_all(raw_post(&path(&id), &long).as_bytes())
        .await
        .unwrap();
    eventually("the first runs", || simulator.state().running == 1).await;
    let first = simulator.state().in_flight[0].clone();
    drop(stream);
    eventually("it was aborted", || simulator.state().running == 0).await;
    let mut short = body();
    short["max_tokens"] = json!(3);
    let reply = retrying(&bed).post(&path(&id), short).await.ok();
    assert_ne!(reply["id"], first);
    assert_eq!(turns(&bed, &id).await, 1);
    served.cancel.cancel();
}
