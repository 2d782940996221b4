//! The stand-in of Miles's HTTP client, before a server that answers byte for byte what a test wants.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    pod::{ONE, Pod},
    router::{FakeRouter, offer},
};

#[derive(Debug, Default)]
struct Seen {
    connections: usize,
    requests: HashMap<String, usize>,
    bodies: Vec<String>,
}

/// What is answered to the `count`-th request of a path, and whether the connection is closed then.
fn answer(path: &str, count: usize) -> (&'static str, bool) {
    match (path, count) {
        ("/text", _) => ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false),
        ("/chunked", _) => (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n5;x=y\r\n: 12}\r\n0\r\nTrailer: 1\r\n\r\n",
            false,
        ),
        ("/until-close", _) => ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[1, 2]", true),
        ("/empty", _) => ("HTTP/1.1 204 No Content\r\n\r\n", false),
        ("/continue", _) => (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            false,
        ),
        ("/closes-later", _) => ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ntrue", true),
        ("/broken", _) => ("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\"", true),
        ("/silent", _) => ("", true),
        ("/garbage", _) => ("I am no HTTP server\r\n\r\n", true),
        ("/flaky", 1 | 2) => (
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
            false,
        ),
        ("/flaky" | "/get?x=1&y=%20z", _) => {
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7", false)
        }
        ("/refused", _) => (
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 3\r\n\r\nbad",
            false,
        ),
        ("/final", _) => (
            "HTTP/1.1 429 Too Many Requests\r\nX-Should-Retry: false\r\ncontent-length: 0\r\n\r\n",
            false,
        ),
        _ => panic!("{path}"),
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Seen>>) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |text| text.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let (answer, close) = {
            let mut seen = seen.lock();
            seen.bodies.push(String::from_utf8(body).unwrap());
            let count = seen.requests.entry(path.clone()).or_default();
            *count += 1;
            answer(&path, *count)
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
        if close {
            return;
        }
    }
}

#[tokio::test]
async fn reads_every_form_of_body_tries_again_and_stops_when_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut tasks = JoinSet::new();
    let shared = Arc::clone(&seen);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            shared.lock().connections += 1;
            connections.spawn(serve(stream, Arc::clone(&shared)));
        }
    });
    let router = FakeRouter::start().await;
    let mut session = offer();
    let paths = [
        "/text",
        "/chunked",
        "/empty",
        "/continue",
        "/until-close",
        "/closes-later",
        "/text",
        "/broken",
        "/silent",
        "/garbage",
    ];
    session["metadata"] = json!({"server": server, "paths": paths});
    let id = router.offer(session);
    let _pod = Pod::function(&router, ONE, "http_agent.run");
    let result = router.result(&id).await;
    let found = &result["metadata"];
    assert_eq!(result["outcome"], "completed", "{result:#}");
    assert_eq!(found["/text"], "hello");
    assert_eq!(found["/chunked"], json!({"a": 12}));
    assert_eq!(found["/until-close"], json!([1, 2]));
    assert_eq!(found["/empty"], "");
    assert_eq!(found["/continue"], json!({}));
    assert_eq!(found["/closes-later"], json!(true));
    for (path, expected) in [
        ("/broken", "broke off"),
        ("/silent", "without an answer"),
        ("/garbage", "not an HTTP/1 answer"),
    ] {
        assert!(
            found[path].as_str().unwrap().contains(expected),
            "{found:#}"
        );
    }
    assert_eq!(found["tried again"], 7);
    assert!(
        found["tried in vain"]
            .as_str()
            .unwrap()
            .ends_with("answered 400: bad"),
        "{found:#}"
    );
    assert!(
        found["final"].as_str().unwrap().contains("answered 429"),
        "{found:#}"
    );
    assert_eq!(found["get"], 7);
    assert_eq!(found["deleted"], "");
    let seen = seen.lock();
    assert_eq!(seen.requests["/flaky"], 3);
    assert_eq!(seen.requests["/refused"], 2);
    assert_eq!(seen.requests["/final"], 1);
    assert_eq!(seen.bodies[0], r#"{"a":[1,null]}"#);
    // One for the first five answers, then one after each that the server closed.
    assert_eq!(seen.connections, 6, "{seen:?}");
}
