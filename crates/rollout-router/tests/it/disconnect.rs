//! Clients that go away, on real sockets: their requests are aborted at the engine at once.

use std::time::Duration;

use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Bed, Served, eventually, raw_post, slow_engine_config, user};

fn endless(extra: Value) -> Value {
    let mut body = json!({"messages": [user("hi")], "max_tokens": 20_000, "ignore_eos": true});
    body.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    body
}

async fn send(address: std::net::SocketAddr, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(raw_post(path, body).as_bytes())
        .await
        .unwrap();
    stream
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_slot() {
    let bed = Bed::with(vec![slow_engine_config()], |config| {
        config.times.keep_alive = Duration::from_millis(20);
    })
    .await;
    let served = Served::start(&bed.router).await;
    let simulator = &bed.engines[0].simulator;
    let id = bed.session(json!({})).await;
    let session = format!("/sessions/{id}/v1/chat/completions");
    let generate = json!({"input_ids": [5], "sampling_params": {"max_new_tokens": 20_000, "ignore_eos": true}});
    let mut streamed_generate = generate.clone();
    streamed_generate["stream"] = json!(true);
    let cases = [
        (served.agents, session.as_str(), endless(json!({}))),
        (
            served.agents,
            session.as_str(),
            endless(json!({"stream": true})),
        ),
        (served.control, "/generate", generate),
        (served.control, "/generate", streamed_generate),
        (
            served.control,
            "/v1/chat/completions",
            endless(json!({"stream": true})),
        ),
    ];
    for (number, (address, path, body)) in cases.into_iter().enumerate() {
        let stream = send(address, path, &body).await;
        eventually("the request runs", || simulator.state().running == 1).await;
        let rid = simulator.state().in_flight[0].clone();
        drop(stream);
        eventually("the request is gone", || simulator.state().running == 0).await;
        eventually("the engine was told by id", || {
            simulator.state().paths["/abort_request"].requests > number as u64
        })
        .await;
        assert!(simulator.state().aborted_rids.contains(&rid));
    }
    let view = bed.control().get(&format!("/sessions/{id}")).await.ok();
    assert_eq!(view["records"], json!([]));
    served.cancel.cancel();
}

#[tokio::test]
async fn a_client_that_goes_away_while_its_request_is_queued_frees_it_too() {
    let mut config = slow_engine_config();
    config.max_running_requests = 1;
    let bed = Bed::with(vec![config], |_| {}).await;
    let served = Served::start(&bed.router).await;
    let simulator = &bed.engines[0].simulator;
    let id = bed.session(json!({})).await;
    let path = format!("/sessions/{id}/v1/chat/completions");
    let first = send(served.agents, &path, &endless(json!({}))).await;
    eventually("the first runs", || simulator.state().running == 1).await;
    let second = send(served.agents, &path, &endless(json!({}))).await;
    eventually("the second waits", || simulator.state().waiting == 1).await;
    drop(second);
    eventually("nobody waits", || simulator.state().waiting == 0).await;
    assert_eq!(simulator.state().running, 1);
    drop(first);
    eventually("nothing runs", || simulator.state().running == 0).await;
    served.cancel.cancel();
}

#[tokio::test]
async fn a_client_that_goes_away_before_any_byte_of_a_silent_engine_is_noticed() {
    let bed = Bed::with(vec![slow_engine_config()], |config| {
        config.times.abort_repeat = Duration::from_millis(20);
        config.times.orphan = Duration::from_millis(500);
    })
    .await;
    let served = Served::start(&bed.router).await;
    let simulator = &bed.engines[0].simulator;
    simulator.add_fault(Fault::new("/generate", FaultKind::Stall));
    let body = json!({"input_ids": [5], "sampling_params": {"max_new_tokens": 1}});
    let stream = send(served.control, "/generate", &body).await;
    eventually("the request arrives", || {
        simulator.state().paths.contains_key("/generate")
    })
    .await;
    drop(stream);
    eventually("the engine was told", || {
        simulator.state().paths.contains_key("/abort_request")
    })
    .await;
    let control = bed.control();
    let idle = async {
        while control.get("/status").await.json()["requests_in_flight"] != 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), idle)
        .await
        .unwrap();
    served.cancel.cancel();
}

#[tokio::test]
async fn stopping_ends_what_is_in_flight_and_tells_the_clients() {
    let bed = Bed::with(vec![slow_engine_config()], |_| {}).await;
    let served = Served::start(&bed.router).await;
    let simulator = &bed.engines[0].simulator;
    let id = bed.session(json!({})).await;
    let path = format!("/sessions/{id}/v1/chat/completions");
    let mut stream = send(served.agents, &path, &endless(json!({}))).await;
    eventually("the request runs", || simulator.state().running == 1).await;
    served.cancel.cancel();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\"finish_reason\":\"abort\""));
    tokio::time::timeout(Duration::from_secs(30), served.ended)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(simulator.state().running, 0);
}
