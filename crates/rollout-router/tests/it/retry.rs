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
async fn a_first_request_with_a_key_is_a_first_request() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let keyed = bed.agent().header("idempotency-key", "k1");
    let first = keyed.post(&path(&id), body()).await.ok();
    let second = keyed.post(&path(&id), body()).await.ok();
    assert_ne!(first["id"], second["id"]);
    assert_eq!(turns(&bed, &id).await, 2);
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
