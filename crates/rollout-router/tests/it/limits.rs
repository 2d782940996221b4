//! Each limit has its own clear answer.

use std::time::Duration;

use serde_json::json;

use crate::support::{Bed, Served, engine_config, user};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn sessions_are_limited() {
    let bed = Bed::with(vec![engine_config()], |config| config.limits.sessions = 2).await;
    let first = bed.session(json!({})).await;
    bed.session(json!({})).await;
    let refused = bed.control().post("/sessions", json!({})).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["x-should-retry"], "false");
    assert!(refused.error().contains("there are 2 sessions, the limit"));
    bed.control().delete(&format!("/sessions/{first}")).await;
    bed.session(json!({})).await;
}

#[tokio::test]
async fn turns_of_a_session_are_limited() {
    let bed = Bed::with(vec![engine_config()], |config| config.limits.turns = 2).await;
    let id = bed.session(json!({})).await;
    let body = json!({"messages": [user("hi")], "max_tokens": 2});
    bed.chat(&id, body.clone()).await.ok();
    bed.chat(&id, body.clone()).await.ok();
    let refused = bed.chat(&id, body).await;
    assert_eq!(refused.status, 429);
    assert!(
        refused
            .error()
            .contains("the session has 2 turns, the limit")
    );
    assert_eq!(
        bed.engines[0].simulator.state().paths["/v1/chat/completions"].requests,
        2
    );
}

#[tokio::test]
async fn bytes_of_records_are_limited() {
    let body = json!({"messages": [user("hi")], "max_tokens": 50, "ignore_eos": true});
    let bed = Bed::with(vec![engine_config()], |config| {
        config.limits.session_bytes = 1_000;
    })
    .await;
    let id = bed.session(json!({})).await;
    bed.chat(&id, body.clone()).await.ok();
    let refused = bed.chat(&id, body.clone()).await;
    assert_eq!(refused.status, 413);
    assert!(
        refused.error().contains("the limit is 1000"),
        "{}",
        refused.error()
    );
    let bed = Bed::with(vec![engine_config()], |config| {
        config.limits.total_bytes = 1_000;
    })
    .await;
    let id = bed.session(json!({})).await;
    let other = bed.session(json!({})).await;
    bed.chat(&id, body.clone()).await.ok();
    assert_eq!(bed.chat(&other, body.clone()).await.status, 429);
    bed.control().delete(&format!("/sessions/{id}")).await;
    bed.chat(&other, body).await.ok();
    let status = bed.control().get("/status").await.ok();
    assert!(status["record_bytes"].as_u64().unwrap() > 0);
    bed.control().delete(&format!("/sessions/{other}")).await;
    assert_eq!(bed.control().get("/status").await.ok()["record_bytes"], 0);
}

#[tokio::test]
async fn bodies_are_limited() {
    let bed = Bed::with(vec![engine_config()], |config| {
        config.limits.body_bytes = 1_000;
    })
    .await;
    let id = bed.session(json!({})).await;
    let refused = bed
        .chat(&id, json!({"messages": [user(&"x".repeat(1_000))]}))
        .await;
    assert_eq!(refused.status, 413);
    assert!(refused.error().contains("larger than 1000 bytes"));
    let bed = Bed::with(vec![engine_config()], |config| {
        config.limits.reply_bytes = 1_000;
    })
    .await;
    let id = bed.session(json!({})).await;
    let refused = bed
        .chat(
            &id,
            json!({"messages": [user("hi")], "max_tokens": 500, "ignore_eos": true}),
        )
        .await;
    assert_eq!(refused.status, 502);
    assert!(
        refused.error().contains("larger than 1000 bytes"),
        "{}",
        refused.error()
    );
}

#[tokio::test]
async fn slow_and_oversized_headers_and_slow_bodies_are_cut_off() {
    let bed = Bed::with(vec![engine_config()], |config| {
        config.times.header_read = Duration::from_millis(200);
        config.times.body_read = Duration::from_millis(200);
    })
    .await;
    let served = Served::start(&bed.router).await;
    let exchange = async |request: &str| {
        let mut stream = TcpStream::connect(served.agents).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        let ended = tokio::time::timeout(Duration::from_secs(30), read).await;
        assert!(ended.is_ok(), "the connection stayed open");
        answer
    };
    let slow_headers = exchange("POST /agent/claim HTTP/1.1\r\nhost: a\r\n").await;
    assert!(
        slow_headers.is_empty() || slow_headers.starts_with("HTTP/1.1 408"),
        "{slow_headers}"
    );
    let slow_body =
        exchange("POST /agent/claim HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{").await;
    assert!(slow_body.starts_with("HTTP/1.1 408"), "{slow_body}");
    let long = format!(
        "GET /health HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n",
        "y".repeat(200_000)
    );
    let oversized = exchange(&long).await;
    assert!(oversized.starts_with("HTTP/1.1 431"), "{oversized}");
    served.cancel.cancel();
}
