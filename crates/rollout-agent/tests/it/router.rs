//! A router that a test holds in its hands: it offers sessions, answers the agents' chat, and keeps what the launcher posts.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::Notify,
    time::timeout,
};

/// How long a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const CLAIM_TOKEN: &str = "job/0/1/c0ffee";

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<String>,
    offers: HashMap<String, Value>,
    claims: HashMap<String, String>,
    results: HashMap<String, Vec<Value>>,
    heartbeats: HashMap<String, usize>,
    events: HashMap<String, Value>,
    chats: Vec<(String, Value)>,
    closed: bool,
    fenced: bool,
    refuse_results: usize,
    wrong_tokens: usize,
}

#[derive(Debug, Clone)]
struct Shared {
    inner: Arc<Mutex<Inner>>,
    changed: Arc<Notify>,
    url: String,
}

/// The router; dropping it makes it go away.
#[derive(Debug)]
pub(crate) struct FakeRouter {
    shared: Shared,
    /// A runtime of its own, so that nothing of it is left when it goes.
    runtime: Option<Runtime>,
}

impl Drop for FakeRouter {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A session to offer.
pub(crate) fn offer() -> Value {
    json!({
        "prompt": [{"role": "user", "content": "2+2?"}],
        "request_kwargs": {"temperature": 0.5},
        "metadata": {"session_server_instance_id": "instance-1", "session_server_id": "127.0.0.1:1"},
        "deadline_seconds": 60,
        "heartbeat_seconds": 1,
        "resume": false,
    })
}

impl FakeRouter {
    pub(crate) async fn start() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let bound = runtime.spawn(TcpListener::bind("127.0.0.1:0"));
        let listener = bound.await.unwrap().unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Shared {
            inner: Arc::default(),
            changed: Arc::default(),
            url,
        };
        let app = Router::new()
            .route("/agent/claim", post(claim))
            .route("/agent/sessions/{id}/heartbeat", post(heartbeat))
            .route("/agent/sessions/{id}/events", get(events))
            .route("/agent/sessions/{id}/result", post(result))
            .route("/sessions/{id}/v1/chat/completions", post(chat))
            .with_state(shared.clone());
        runtime.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            shared,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.shared.url
    }

    /// Offers a session and answers its id.
    pub(crate) fn offer(&self, mut session: Value) -> String {
        let id = format!("{:032x}", rand::random::<u128>());
        session["session_id"] = json!(id);
        session["base_url"] = json!(format!("{}/sessions/{id}", self.shared.url));
        session["token"] = json!(format!("token-of-{id}"));
        self.change(|inner| {
            inner.queue.push_back(id.clone());
            inner.offers.insert(id.clone(), session);
        });
        id
    }

    /// No more work.
    pub(crate) fn close(&self) {
        self.change(|inner| inner.closed = true);
    }

    /// Refuses every turn from now on.
    pub(crate) fn fence(&self) {
        self.change(|inner| inner.fenced = true);
    }

    /// Answers the next results with 503.
    pub(crate) fn refuse_results(&self, count: usize) {
        self.change(|inner| inner.refuse_results = count);
    }

    /// Aborts sessions.
    pub(crate) fn abort(&self, sessions: &[&String], event: &Value) {
        self.change(|inner| {
            for id in sessions {
                inner.events.insert((*id).clone(), event.clone());
            }
        });
    }

    /// The router forgets a session.
    pub(crate) fn forget(&self, id: &str) {
        self.change(|inner| drop(inner.offers.remove(id)));
    }

    /// Waits for the result of a session.
    pub(crate) async fn result(&self, id: &str) -> Value {
        self.until("a result", |inner| {
            inner
                .results
                .get(id)
                .and_then(|results| results.first().cloned())
        })
        .await
    }

    /// Waits until so many chat requests have come.
    pub(crate) async fn chats(&self, count: usize) -> Vec<(String, Value)> {
        self.until("chat requests", |inner| {
            (inner.chats.len() >= count).then(|| inner.chats.clone())
        })
        .await
    }

    pub(crate) fn chats_now(&self) -> usize {
        self.shared.inner.lock().chats.len()
    }

    pub(crate) fn results_of(&self, id: &str) -> usize {
        self.shared.inner.lock().results.get(id).map_or(0, Vec::len)
    }

    pub(crate) fn wrong_tokens(&self) -> usize {
        self.shared.inner.lock().wrong_tokens
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.shared.inner.lock());
        self.shared.changed.notify_waiters();
    }

    async fn until<T>(&self, what: &str, condition: impl FnMut(&Inner) -> Option<T>) -> T {
        let found = timeout(PATIENCE, wait(&self.shared, condition)).await;
        found.unwrap_or_else(|_| {
            panic!("waited for {what}; {:#?}", self.shared.inner.lock().results)
        })
    }
}

async fn wait<T>(shared: &Shared, mut condition: impl FnMut(&Inner) -> Option<T>) -> T {
    loop {
        let changed = shared.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if let Some(found) = condition(&shared.inner.lock()) {
            return found;
        }
        changed.await;
    }
}

async fn claim(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let claim_id = body["claim_id"].as_str().unwrap().to_owned();
    if headers["authorization"] != format!("Bearer {CLAIM_TOKEN}") {
        shared.inner.lock().wrong_tokens += 1;
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let wait_seconds =
        Duration::from_secs_f64(body["wait_seconds"].as_f64().unwrap()).min(Duration::from_secs(1));
    let open = wait(&shared, |inner| {
        (inner.closed || !inner.queue.is_empty() || inner.claims.contains_key(&claim_id))
            .then_some(())
    });
    let _ = timeout(wait_seconds, open).await;
    let mut inner = shared.inner.lock();
    if let Some(id) = inner.claims.get(&claim_id) {
        return Json(inner.offers[id].clone()).into_response();
    }
    let Some(id) = inner.queue.pop_front() else {
        return if inner.closed {
            closed()
        } else {
            StatusCode::NO_CONTENT.into_response()
        };
    };
    inner.claims.insert(claim_id, id.clone());
    let offer = inner.offers[&id].clone();
    drop(inner);
    shared.changed.notify_waiters();
    Json(offer).into_response()
}

fn closed() -> Response {
    let error = json!({"error": {"message": "rollout closed: enough", "type": "rollout_closed", "code": "rollout_closed"}});
    (StatusCode::GONE, [("x-should-retry", "false")], Json(error)).into_response()
}

async fn heartbeat(State(shared): State<Shared>, Path(id): Path<String>) -> Response {
    let mut inner = shared.inner.lock();
    *inner.heartbeats.entry(id.clone()).or_default() += 1;
    if !inner.offers.contains_key(&id) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let state = if inner.events.contains_key(&id) {
        "aborting"
    } else {
        "running"
    };
    Json(json!({"state": state})).into_response()
}

async fn events(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let wait_seconds = Duration::from_secs(query["wait_seconds"].parse().unwrap());
    let event = wait(&shared, |inner| inner.events.get(&id).cloned());
    match timeout(wait_seconds, event).await {
        Ok(event) => Json(event).into_response(),
        Err(_) => StatusCode::NO_CONTENT.into_response(),
    }
}

async fn result(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Json(body): Json<Value>,
) -> Response {
    {
        let mut inner = shared.inner.lock();
        if inner.refuse_results > 0 {
            inner.refuse_results -= 1;
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        inner.results.entry(id).or_default().push(body);
    }
    shared.changed.notify_waiters();
    Json(Map::new()).into_response()
}

async fn chat(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    Json(body): Json<Value>,
) -> Response {
    let fenced = {
        let mut inner = shared.inner.lock();
        inner.chats.push((id, body));
        inner.fenced
    };
    shared.changed.notify_waiters();
    if fenced {
        return closed();
    }
    Json(json!({"choices": [{"message": {"role": "assistant", "content": "4"}}]})).into_response()
}
