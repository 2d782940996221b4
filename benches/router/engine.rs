//! An engine that answers at once with prepared bytes.
//!
//! A chat is answered by the turn that its `x-request-id` names (both routers hand that header on), `/generate` by the size of the
//! request. The other routes are what a router asks before it trusts an engine.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::replies;
use crate::turns::{SHAPES, TURNS};

/// Requests above this size are answered as long generations.
const LARGE: usize = 8_000;

struct Prepared {
    turns: Vec<Vec<Bytes>>,
    short: Bytes,
    long: Bytes,
}

/// Serves until standard input is closed.
pub(crate) async fn serve() {
    let turns = SHAPES.map(|shape| {
        (0..TURNS)
            .map(|turn| replies::chat(shape.prompt_tokens(turn)))
            .collect()
    });
    let prepared = Arc::new(Prepared {
        turns: turns.to_vec(),
        short: replies::generate(16),
        long: replies::generate(256),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!(
        "{}",
        json!({"url": format!("http://{}", listener.local_addr().unwrap())})
    );
    let mut connections = JoinSet::new();
    let mut stdin = tokio::io::stdin();
    let mut byte = [0];
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted.unwrap().0,
            _ = stdin.read(&mut byte) => return,
        };
        stream.set_nodelay(true).unwrap();
        let prepared = Arc::clone(&prepared);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&prepared), request));
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
            drop(served);
        });
    }
}

async fn answer(
    prepared: Arc<Prepared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let size = body.collect().await.map_or(0, |body| body.to_bytes().len());
    let reply = match head.uri.path() {
        "/v1/chat/completions" => {
            let id = head.headers.get("x-request-id").unwrap().to_str().unwrap();
            let (shape, turn) = id.split_once('-').unwrap();
            prepared.turns[shape.parse::<usize>().unwrap()][turn.parse::<usize>().unwrap()].clone()
        }
        "/generate" if size > LARGE => prepared.long.clone(),
        "/generate" => prepared.short.clone(),
        "/v1/models" => Bytes::from_static(
            br#"{"object":"list","data":[{"id":"bench","object":"model","created":1796018987,"owned_by":"sglang","root":"bench","parent":null,"max_model_len":32768}]}"#,
        ),
        "/get_model_info" | "/model_info" => Bytes::from_static(
            br#"{"model_path":"bench","tokenizer_path":"bench","is_generation":true,"preferred_sampling_params":null,"weight_version":"default"}"#,
        ),
        "/get_server_info" | "/server_info" => Bytes::from_static(
            br#"{"model_path":"bench","served_model_name":"bench","tp_size":1,"dp_size":1,"version":"0.5.23"}"#,
        ),
        _ => Bytes::new(),
    };
    let mut response = Response::new(Full::new(reply));
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    Ok(response)
}
