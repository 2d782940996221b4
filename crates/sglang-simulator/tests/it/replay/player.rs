//! Sends requests to a simulator as the captures' client did.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Request};
use http_body::Body as _;
use serde_json::Value;
use sglang_simulator::Simulator;
use tokio::task::JoinSet;

use crate::support::{begin, is_dropped, text};

/// What came back.
#[derive(Debug)]
pub(crate) enum Observed {
    Answer {
        status: u16,
        headers: HeaderMap,
        /// Whether the length of the body was known from the start.
        sized: bool,
        body: String,
    },
    /// The connection would have been closed without an answer.
    Dropped,
}

/// A request under way. Dropping it is a lost client.
pub(crate) struct Pending(JoinSet<Observed>);

impl Pending {
    pub(crate) async fn answer(mut self) -> Observed {
        self.0.join_next().await.expect("a task").expect("no panic")
    }

    /// Whether the answer is there already.
    pub(crate) fn is_done(&mut self) -> bool {
        match self.0.try_join_next() {
            None => false,
            Some(done) => {
                let observed = done.expect("no panic");
                self.0.spawn(async move { observed });
                true
            }
        }
    }
}

pub(crate) struct Player {
    pub(crate) simulator: Simulator,
}

impl Player {
    pub(crate) fn new(simulator: Simulator) -> Self {
        Self { simulator }
    }

    /// Sends a captured request that is complete.
    pub(crate) async fn send(&self, request: &Value) -> Observed {
        let method = request["method"].as_str().expect("a method");
        let path = request["path"].as_str().expect("a path");
        let mut builder = Request::builder().method(method).uri(path);
        let headers = request["headers"].as_object();
        if !headers.is_some_and(|headers| headers.contains_key("content-type"))
            && !request["body"].is_null()
        {
            builder = builder.header("content-type", "application/json");
        }
        for (name, value) in headers.into_iter().flatten() {
            builder = builder.header(name, value.as_str().expect("a header"));
        }
        let body = match &request["body"] {
            Value::Null => Body::empty(),
            Value::String(raw) => Body::from(raw.clone()),
            json => Body::from(json.to_string()),
        };
        observe(
            self.simulator.clone(),
            builder.body(body).expect("a request"),
        )
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Observed {
        self.send(&serde_json::json!({"method": "GET", "path": path}))
            .await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Observed {
        self.send(&serde_json::json!({"method": "POST", "path": path, "body": body}))
            .await
    }

    /// Sends without waiting, and lets the engine take it.
    pub(crate) async fn start(&self, path: &str, body: Value) -> Pending {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .expect("a request");
        let mut tasks = JoinSet::new();
        tasks.spawn(observe(self.simulator.clone(), request));
        tokio::time::sleep(Duration::from_millis(1)).await;
        Pending(tasks)
    }
}

async fn observe(simulator: Simulator, request: Request<Body>) -> Observed {
    let response = begin(&simulator, request).await;
    if is_dropped(&response) {
        return Observed::Dropped;
    }
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let sized = response.body().size_hint().exact().is_some();
    match text(response.into_body()).await {
        Some(body) => Observed::Answer {
            status,
            headers,
            sized,
            body,
        },
        None => Observed::Dropped,
    }
}
