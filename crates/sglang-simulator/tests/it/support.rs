//! A simulator without a socket, called as a client would.

use axum::body::Body;
use http::Request;
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

pub(crate) async fn post(simulator: &Simulator, path: &str, body: Value) -> Reply {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .expect("a request");
    call(simulator, request).await
}

pub(crate) async fn get(simulator: &Simulator, path: &str) -> Reply {
    call(
        simulator,
        Request::get(path).body(Body::empty()).expect("a request"),
    )
    .await
}

pub(crate) async fn call(simulator: &Simulator, request: Request<Body>) -> Reply {
    let response = simulator
        .router()
        .oneshot(request)
        .await
        .expect("the router always answers");
    let status = response.status().as_u16();
    let bytes = response
        .into_body()
        .collect()
        .await
        .expect("a whole body")
        .to_bytes();
    Reply {
        status,
        text: String::from_utf8(bytes.to_vec()).expect("text"),
    }
}

pub(crate) async fn delete(simulator: &Simulator, path: &str) -> Reply {
    call(
        simulator,
        Request::delete(path)
            .body(Body::empty())
            .expect("a request"),
    )
    .await
}

/// A call whose answer may never come whole.
pub(crate) async fn attempt(simulator: &Simulator, path: &str, body: Value) -> Option<Reply> {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .expect("a request");
    let response = simulator
        .router()
        .oneshot(request)
        .await
        .expect("the router always answers");
    if response.headers().contains_key("x-simulator-fault") {
        return None;
    }
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.ok()?.to_bytes();
    Some(Reply {
        status,
        text: String::from_utf8(bytes.to_vec()).expect("text"),
    })
}
