//! A router with engines, and a client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use rollout_router::{BodyError, Config, Holder, Router, Service};
use rollout_session::{Collected, codec};
use serde_json::{Value, json};
use sglang_simulator::Simulator;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) const JOB: &str = "swe";
pub(crate) const CLAIM_SECRET: &str = "claim-secret";

/// A fast engine.
pub(crate) fn engine_config() -> sglang_simulator::Config {
    sglang_simulator::Config {
        time_scale: 1000,
        ..sglang_simulator::Config::default()
    }
}

/// An engine that needs minutes for a long answer.
pub(crate) fn slow_engine_config() -> sglang_simulator::Config {
    sglang_simulator::Config::default()
}

/// A simulated engine on a socket.
pub(crate) struct Engine {
    pub(crate) simulator: Simulator,
    pub(crate) url: String,
    cancel: CancellationToken,
}

impl Engine {
    pub(crate) async fn start(config: sglang_simulator::Config) -> Self {
        let simulator = Simulator::new(config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let cancel = CancellationToken::new();
        let (serving, token) = (simulator.clone(), cancel.clone());
        TaskTracker::new().spawn(async move { serving.serve(listener, token).await });
        Self {
            simulator,
            url,
            cancel,
        }
    }

    /// Requests wait at its gate from now on.
    pub(crate) async fn pause(&self) {
        self.control("/pause_generation", r#"{"mode":"in_place"}"#)
            .await;
    }

    pub(crate) async fn resume(&self) {
        self.control("/continue_generation", "{}").await;
    }

    /// The version of its weights, past the router.
    pub(crate) async fn weight_version(&self) -> String {
        use tower::ServiceExt;
        let request = Request::get("/model_info")
            .body(axum::body::Body::empty())
            .unwrap();
        let answer = self.simulator.router().oneshot(request).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let info: Value = serde_json::from_slice(&body).unwrap();
        info["weight_version"].as_str().unwrap().to_owned()
    }

    /// A control call, past the router.
    async fn control(&self, path: &str, body: &str) {
        use tower::ServiceExt;
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body.to_owned()))
            .unwrap();
        let answer = self.simulator.router().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.url.trim_start_matches("http://").parse().unwrap()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.simulator.kill();
    }
}

/// An engine that keeps what it gets and answers the same bytes to everything.
pub(crate) struct Recorder {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
}

impl Recorder {
    pub(crate) async fn start(answer: &'static str) -> Self {
        let requests: Arc<Mutex<Vec<(HeaderMap, Bytes)>>> = Arc::default();
        let kept = Arc::clone(&requests);
        let routes = axum::Router::new().fallback(move |headers: HeaderMap, body: Bytes| {
            if !body.is_empty() {
                kept.lock().push((headers, body));
            }
            async move {
                (
                    [("content-type", "application/json"), ("x-engine", "1")],
                    answer,
                )
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        TaskTracker::new().spawn(async move { axum::serve(listener, routes).await });
        Self { url, requests }
    }

    /// The latest request.
    pub(crate) fn last(&self) -> (HeaderMap, Bytes) {
        self.requests.lock().last().unwrap().clone()
    }
}

/// An answer that was read whole.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{:?}", self.body);
        self.json()
    }

    pub(crate) fn error(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap().to_owned()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A router in front of engines.
pub(crate) struct Bed {
    pub(crate) engines: Vec<Engine>,
    pub(crate) router: Router,
}

impl Bed {
    pub(crate) async fn start() -> Self {
        Self::with(vec![engine_config()], |_| {}).await
    }

    pub(crate) async fn with(
        engines: Vec<sglang_simulator::Config>,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let mut started = Vec::new();
        for config in engines {
            started.push(Engine::start(config).await);
        }
        let urls = started.iter().map(|engine| engine.url.clone()).collect();
        Self {
            router: Self::router(urls, adjust),
            engines: started,
        }
    }

    /// A router in front of engines that it is not told of.
    pub(crate) async fn untold(
        engines: Vec<sglang_simulator::Config>,
        adjust: impl FnOnce(&mut Config, &[Engine]),
    ) -> Self {
        let mut started = Vec::new();
        for config in engines {
            started.push(Engine::start(config).await);
        }
        let told = |config: &mut Config| adjust(config, &started);
        let router = Self::router(Vec::new(), told);
        Self {
            router,
            engines: started,
        }
    }

    fn router(urls: Vec<String>, adjust: impl FnOnce(&mut Config)) -> Router {
        let mut config = Config::new(urls);
        config.claim_secret = Some(CLAIM_SECRET.to_owned());
        config.advertise_url = Some("http://router:8080".to_owned());
        adjust(&mut config);
        Router::new(config).unwrap()
    }

    pub(crate) fn control(&self) -> Client {
        Client::new(self.router.control_service())
    }

    pub(crate) fn agent(&self) -> Client {
        Client::new(self.router.agents_service())
    }

    pub(crate) fn launcher(&self, slot: &str, generation: u64) -> Client {
        let holder = Holder {
            job: JOB.to_owned(),
            slot: slot.to_owned(),
            generation,
        };
        let token = holder.token(CLAIM_SECRET);
        self.agent()
            .header("authorization", &format!("Bearer {token}"))
    }

    /// Creates a session and answers its id.
    pub(crate) async fn session(&self, body: Value) -> String {
        let created = self.control().post("/sessions", body).await.ok();
        created["session_id"].as_str().unwrap().to_owned()
    }

    /// The requests of a session as the engine got them.
    pub(crate) async fn engine_requests(&self, session: &str) -> Vec<Value> {
        let path = format!("/sessions/{session}");
        let story = self.control().get(&path).await.ok();
        let records = story["records"].as_array().unwrap().clone();
        records
            .into_iter()
            .map(|record| record["request"].clone())
            .collect()
    }

    pub(crate) async fn chat(&self, session: &str, body: Value) -> Answer {
        let path = format!("/sessions/{session}/v1/chat/completions");
        self.agent().post(&path, body).await
    }

    /// A streamed chat whose head has come.
    pub(crate) async fn chat_stream(&self, session: &str, body: Value) -> Pieces {
        let request = Request::post(format!("/sessions/{session}/v1/chat/completions"))
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let response = self.router.agents_service().respond(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        Pieces(response.into_body())
    }

    pub(crate) async fn samples(&self, session: &str, body: Value) -> Collected {
        let path = format!("/sessions/{session}/samples");
        let answer = self.control().post(&path, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        let collected = codec::decode(&answer.body).unwrap();
        for sample in &collected.samples {
            sample.validate().unwrap();
        }
        collected
    }
}

/// A body piece by piece.
pub(crate) struct Pieces(rollout_router::Body);

impl Pieces {
    pub(crate) async fn next(&mut self) -> Option<String> {
        let frame = self.0.frame().await?.unwrap();
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }
}

/// Calls one of the services.
#[derive(Clone)]
pub(crate) struct Client {
    service: Service,
    headers: HeaderMap,
}

impl Client {
    fn new(service: Service) -> Self {
        Self {
            service,
            headers: HeaderMap::new(),
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, body.to_string()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "").await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        self.try_send(method, path, body).await.unwrap()
    }

    /// The same, when the answer may break off.
    pub(crate) async fn try_send(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, BodyError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .body(Full::new(body.into()))
            .unwrap();
        request.headers_mut().extend(self.headers.clone());
        request
            .headers_mut()
            .entry("content-type")
            .or_insert("application/json".parse().unwrap());
        let response = self.service.respond(request).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }
}

/// A router that serves on sockets.
pub(crate) struct Served {
    pub(crate) agents: std::net::SocketAddr,
    pub(crate) control: std::net::SocketAddr,
    pub(crate) cancel: CancellationToken,
    pub(crate) ended: tokio::task::JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(router: &Router) -> Self {
        let listeners = rollout_router::Listeners {
            agents: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            control: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        };
        let agents = listeners.agents.local_addr().unwrap();
        let control = listeners.control.local_addr().unwrap();
        let cancel = CancellationToken::new();
        let (serving, token) = (router.clone(), cancel.clone());
        let ended = TaskTracker::new().spawn(async move {
            serving.serve(listeners, token).await.unwrap();
        });
        Self {
            agents,
            control,
            cancel,
            ended,
        }
    }
}

/// The bytes of a request.
pub(crate) fn raw_post(path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// Waits for something that ends, for at most a minute.
pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_mins(1), work).await;
    done.unwrap_or_else(|_| panic!("it did not end"))
}

/// Waits until a condition holds, for at most two minutes.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(Duration::from_mins(2), wait)
        .await
        .is_err()
    {
        panic!("{what} did not happen");
    }
}
