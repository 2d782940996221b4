//! The router's own end: whoever asked something gets an answer, also when engines or launchers do not.

use std::time::Duration;

use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{
    Bed, JOB, Served, engine_config, eventually, in_time, raw_post, slow_engine_config, user,
};

fn endless() -> Value {
    json!({"messages": [user("hi")], "max_tokens": 20_000, "ignore_eos": true})
}

async fn send(address: std::net::SocketAddr, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = raw_post(path, body);
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads one answer of a connection: head, and the JSON body as long as the head says.
async fn answer(stream: &mut TcpStream) -> (String, Value) {
    let mut text = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = in_time(stream.read(&mut piece)).await.unwrap();
        text.extend_from_slice(&piece[..read]);
        let whole = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if body.len() == length {
                let body = serde_json::from_str(body).unwrap_or_default();
                return (head.to_owned(), body);
            }
        }
        assert!(read > 0, "the connection broke off: {whole}");
    }
}

#[tokio::test]
async fn a_fence_that_is_being_answered_is_answered() {
    let bed = Bed::with(vec![slow_engine_config()], |config| {
        config.times.shutdown = Duration::from_millis(1_600);
        config.times.keep_alive = Duration::from_millis(20);
    })
    .await;
    let served = Served::start(&bed.router).await;
    let simulator = &bed.engines[0].simulator;
    // The engine hears of no abort.
    simulator.add_fault(Fault::new("/abort_request", FaultKind::Stall));
    let id = bed.session(json!({"job": JOB})).await;
    let chat = format!("/sessions/{id}/v1/chat/completions");
    let mut turn = send(served.agents, &chat, &endless()).await;
    let mut streamed = endless();
    streamed["stream"] = json!(true);
    let mut stream = send(served.agents, &chat, &streamed).await;
    let generate = json!({"input_ids": [5], "sampling_params": {"max_new_tokens": 20_000, "ignore_eos": true}});
    let mut passing = send(served.control, "/generate", &generate).await;
    eventually("the requests run", || simulator.state().running == 3).await;
    let body = json!({"job": JOB, "deadline_seconds": 600});
    let mut fence = send(served.control, "/fence", &body).await;
    eventually("the fence aborts", || {
        simulator.state().paths.contains_key("/abort_request")
    })
    .await;
    served.cancel.cancel();

    let (head, report) = answer(&mut fence).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(report["requests"], 2, "{report}");
    assert_eq!(report["left"], 2, "{report}");
    for stream in [&mut turn, &mut passing] {
        let (head, body) = answer(stream).await;
        assert!(head.starts_with("HTTP/1.1 410"), "{head}");
        assert!(head.contains("x-should-retry: false"), "{head}");
        assert_eq!(body["error"]["code"], "rollout_closed");
    }
    let mut rest = String::new();
    in_time(stream.read_to_string(&mut rest)).await.unwrap();
    assert!(rest.contains("the router is stopping"), "{rest}");
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    in_time(served.ended).await.unwrap();
}

#[tokio::test]
async fn an_order_to_the_agents_that_is_being_answered_is_answered() {
    let bed = Bed::with(vec![engine_config()], |config| {
        config.times.shutdown = Duration::from_millis(800);
    })
    .await;
    let served = Served::start(&bed.router).await;
    bed.session(json!({"job": JOB, "assign": true})).await;
    let claim = json!({"claim_id": "0123456789abcdef0123456789abcdef", "wait_seconds": 5});
    bed.launcher("0", 1).post("/agent/claim", claim).await.ok();
    let body = json!({"job": JOB, "timeout_seconds": 600});
    let mut order = send(served.control, "/agent-abort", &body).await;
    let outcomes = format!("/outcomes?job={JOB}");
    served.cancel.cancel();
    let (head, report) = answer(&mut order).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(report["hooks"]["timed_out"], 1, "{report}");
    let feed = bed.control().get(&outcomes).await.ok();
    assert_eq!(feed["outcomes"][0]["outcome"], "aborted");
    in_time(served.ended).await.unwrap();
}

#[tokio::test]
async fn what_a_client_says_on_its_way_out_is_heard() {
    let bed = Bed::with(vec![engine_config()], |config| {
        config.times.linger = Duration::from_secs(30);
        config.times.shutdown = Duration::from_mins(4);
    })
    .await;
    let served = Served::start(&bed.router).await;
    let mut driver = TcpStream::connect(served.control).await.unwrap();
    let create = raw_post("/sessions", &json!({"job": JOB}));
    driver.write_all(create.as_bytes()).await.unwrap();
    let (_, created) = answer(&mut driver).await;
    let id = created["session_id"].as_str().unwrap();
    served.cancel.cancel();
    while bed.control().get("/ready").await.status != 503 {
        tokio::task::yield_now().await;
    }
    let fence = raw_post("/fence", &json!({"job": JOB}));
    driver.write_all(fence.as_bytes()).await.unwrap();
    let (head, report) = answer(&mut driver).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(report["sessions"], 1);
    let delete = format!("DELETE /sessions/{id} HTTP/1.1\r\nhost: router\r\n\r\n");
    driver.write_all(delete.as_bytes()).await.unwrap();
    assert!(answer(&mut driver).await.0.starts_with("HTTP/1.1 204"));
    // The last one has gone: nothing to wait for.
    drop(driver);
    in_time(served.ended).await.unwrap();
}
