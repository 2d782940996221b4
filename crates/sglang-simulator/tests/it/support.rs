//! A simulator without a socket, called as a client would.

use axum::body::Body;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use serde_json::Value;
use sglang_simulator::{Config, Simulator};
use tower::ServiceExt;

/// A status with a body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The events of a stream, without the last `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut lines: Vec<_> = self
            .text
            .split("\n\n")
            .filter(|line| !line.is_empty())
            .map(|line| line.strip_prefix("data: ").expect("an event"))
            .collect();
        assert_eq!(lines.pop(), Some("[DONE]"));
        lines
            .iter()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }
}

pub(crate) fn simulator(config: Config) -> Simulator {
    Simulator::new(config).expect("a valid configuration")
}

fn with_body(path: &str, body: &Value) -> Request<Body> {
    Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .expect("a request")
}

fn without_body(method: Method, path: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    request.body(Body::empty()).expect("a request")
}

/// What is answered at once: the body may still come.
pub(crate) async fn begin(simulator: &Simulator, request: Request<Body>) -> Response<Body> {
    let answer = simulator.router().oneshot(request).await;
    answer.expect("the router always answers")
}

/// Whether the connection would have been closed without an answer.
pub(crate) fn is_dropped(response: &Response<Body>) -> bool {
    response.headers().contains_key("x-simulator-fault")
}

/// A whole body; none: it broke off.
pub(crate) async fn text(body: Body) -> Option<String> {
    let bytes = body.collect().await.ok()?.to_bytes();
    Some(String::from_utf8(bytes.to_vec()).expect("text"))
}

pub(crate) async fn call(simulator: &Simulator, request: Request<Body>) -> Reply {
    let response = begin(simulator, request).await;
    let status = response.status().as_u16();
    let text = text(response.into_body()).await;
    Reply {
        status,
        text: text.expect("a whole body"),
    }
}

pub(crate) async fn post(simulator: &Simulator, path: &str, body: Value) -> Reply {
    call(simulator, with_body(path, &body)).await
}

pub(crate) async fn get(simulator: &Simulator, path: &str) -> Reply {
    call(simulator, without_body(Method::GET, path)).await
}

pub(crate) async fn delete(simulator: &Simulator, path: &str) -> Reply {
    call(simulator, without_body(Method::DELETE, path)).await
}

/// A call whose answer may never come whole.
pub(crate) async fn attempt(simulator: &Simulator, path: &str, body: Value) -> Option<Reply> {
    let response = begin(simulator, with_body(path, &body)).await;
    if is_dropped(&response) {
        return None;
    }
    let status = response.status().as_u16();
    let text = text(response.into_body()).await?;
    Some(Reply { status, text })
}
