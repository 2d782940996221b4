//! Calls over sockets: what is tried again and what is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::json;
use sglang_client::{Backoff, Client, ClientError, ClientOptions, Fault, GenerateRequest, Prompt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

fn request() -> GenerateRequest {
    GenerateRequest {
        prompt: Prompt::Ids(vec![1]),
        rid: "r".into(),
        sampling_params: serde_json::Map::new(),
        return_logprob: true,
        return_routed_experts: false,
        return_indexer_topk: false,
        return_prompt_token_ids: false,
    }
}

async fn serve(app: Router, tasks: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        axum::serve(listener, app).await.unwrap();
    });
    format!("http://{address}")
}

fn client(base: &str) -> Client {
    Client::new(base, ClientOptions::default()).unwrap()
}

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_error_of_the_server_is_never_sent_again() {
    let calls = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&calls);
    let app = Router::new().route(
        "/generate",
        post(move || async move {
            counter.fetch_add(1, Ordering::Relaxed);
            (
                StatusCode::SERVICE_UNAVAILABLE,
                r#"{"message":"queue full"}"#,
            )
        }),
    );
    let mut tasks = JoinSet::new();
    let client = client(&serve(app, &mut tasks).await);
    let error = client.generate(&request(), SOON, &[]).await.unwrap_err();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(error.fault(), Fault::Server);
    assert_eq!(error.label(), "unavailable");
    assert!(error.to_string().ends_with("answered 503: queue full"));
}

#[tokio::test]
async fn a_wrong_request_is_the_callers_fault_and_a_closed_rollout_nobodys() {
    let app = Router::new()
        .route(
            "/generate",
            post(|| async { (StatusCode::BAD_REQUEST, r#"{"error":"too long"}"#) }),
        )
        .route(
            "/abort_request",
            post(|| async {
                (
                    StatusCode::GONE,
                    r#"{"error":{"message":"rollout closed: x","code":"rollout_closed"}}"#,
                )
            }),
        );
    let mut tasks = JoinSet::new();
    let client = client(&serve(app, &mut tasks).await);
    let wrong = client.generate(&request(), SOON, &[]).await.unwrap_err();
    assert_eq!(wrong.fault(), Fault::Request);
    assert_eq!(client.abort(None).await.unwrap_err().fault(), Fault::Closed);
}

#[tokio::test]
async fn a_wrong_key_is_no_fault_of_the_request() {
    for (status, label) in [
        (401, "unauthorized"),
        (403, "unauthorized"),
        (429, "overloaded"),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        let app = Router::new().route("/generate", post(move || async move { status }));
        let mut tasks = JoinSet::new();
        let client = client(&serve(app, &mut tasks).await);
        let error = client.generate(&request(), SOON, &[]).await.unwrap_err();
        assert_eq!(error.fault(), Fault::Server);
        assert_eq!(error.label(), label);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_body_is_not_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    let accepted = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&accepted);
    tasks.spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::Relaxed);
            let mut buffer = [0u8; 4096];
            let _ = socket.read(&mut buffer).await;
            let _ = socket
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"text\": \"half")
                .await;
        }
    });
    let error = client(&base)
        .generate(&request(), SOON, &[])
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error:?}");
    assert!(!error.is_unsent());
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
}

/// The clock stands still until the server is there: pauses between tries take no time, and nothing else is waited for.
#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_is_reached_by_a_later_try() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let client = client(&format!("http://{address}"));
    let call = client.loads();
    let comes_back = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let listener = TcpListener::bind(address).await.unwrap();
        tokio::time::resume();
        let app = Router::new().route(
            "/v1/loads",
            get(|| async {
                axum::Json(json!({"version": "0.5.23", "loads": [
                    {"num_running_reqs": 2, "num_waiting_reqs": 1}, {"num_running_reqs": 4}]}))
            }),
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
        tasks
    };
    let (loads, _server) = tokio::join!(call, comes_back);
    assert_eq!(loads.unwrap().requests(), 7);
}

#[tokio::test(start_paused = true)]
async fn nobody_there_is_an_error_after_a_bounded_time() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let backoff = Backoff::default();
    let bound = backoff.give_up_after;
    let options = ClientOptions {
        backoff,
        ..ClientOptions::default()
    };
    let client = Client::new(&base, options).unwrap();
    let began = Instant::now();
    let error = client
        .generate(&request(), 10 * bound, &[])
        .await
        .unwrap_err();
    assert!(error.is_unsent(), "{error:?}");
    let waited = began.elapsed();
    assert!(waited > bound / 2 && waited <= bound, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_ends_at_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let within = Duration::from_millis(100);
    let error = client(&base)
        .generate(&request(), within, &[])
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
}
