//! The routes, and what every answer has in common.

mod body;
mod chat;
mod completions;
mod control;
mod generate;
mod health;
mod in_flight;
mod info;
mod limits;
mod loads;
mod metrics;
mod openai;
mod panel;
mod problem;
mod pydantic;
mod reply;
mod routes;
pub(crate) mod serve;
mod tokenize;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use http::HeaderValue;
use http::header::{SERVER, VARY};
use parking_lot::Mutex;
use rollout_tokenizer::Tokenizer;

pub(crate) use in_flight::Activity;

use crate::config::Config;
use crate::engine::Engine;
use crate::faults::{self, Fault, FaultKind, Faults};
use crate::replies::Model;
use routes::{Endpoint, Match};

/// Whether the engine has such a path.
pub(crate) fn has_path(path: &str) -> bool {
    matches!(routes::find(path), Match::Found(_))
}

/// What handlers share.
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) engine: Arc<Engine>,
    pub(crate) model: Model,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) vocab_size: usize,
    pub(crate) faults: Mutex<Faults>,
    pub(crate) activity: Arc<Activity>,
}

/// Marks an answer that must not be sent: the connection is closed instead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dropped;

impl App {
    /// Longest prompt plus output.
    pub(crate) fn context_length(&self) -> usize {
        self.config.server.context_length as usize
    }

    /// Answers one request.
    pub(crate) async fn handle(self: Arc<Self>, request: Request) -> Response {
        let path = request.uri().path().to_owned();
        let found = routes::find(&path);
        if let Match::Panel(panel) = found {
            return panel::handle(&self, panel, request).await;
        }
        let counted = self
            .activity
            .begin(found.template(&path), request.method().as_str());
        if self.engine.death().is_cancelled() {
            return reply::dropped("dead");
        }
        let fault = self.faults.lock().strike(&path);
        let mut response = match fault {
            Some(fault) => self.struck(&fault, found, request).await,
            None => self.route(found, request).await,
        };
        let headers = response.headers_mut();
        headers.insert(SERVER, HeaderValue::from_static("uvicorn"));
        headers.insert(VARY, HeaderValue::from_static("Origin"));
        counted.attach(response)
    }

    async fn struck(
        self: &Arc<Self>,
        fault: &Fault,
        found: Match<'_>,
        request: Request,
    ) -> Response {
        match fault.kind {
            FaultKind::Refuse => reply::dropped("refuse"),
            FaultKind::Status500 => reply::internal_server_error(),
            FaultKind::Status503 => reply::engine_status(503, "The request queue is full."),
            FaultKind::Death => {
                self.engine.die("a fault says so");
                reply::dropped("death")
            }
            FaultKind::Stall => {
                self.hold(fault.seconds).await;
                self.route(found, request).await
            }
            FaultKind::SlowFirstByte => {
                let response = self.route(found, request).await;
                self.hold(fault.seconds).await;
                response
            }
            FaultKind::CutBody => self.route(found, request).await.map(faults::cut),
            FaultKind::WrongCounts | FaultKind::MissingIds => {
                let response = self.route(found, request).await;
                let is_stream = reply::is_event_stream(&response);
                let mut response =
                    response.map(|body| faults::rewrite(body, fault.kind, is_stream));
                response.headers_mut().remove(http::header::CONTENT_LENGTH);
                response
            }
        }
    }

    /// Waits; for ever when there is no end.
    async fn hold(&self, seconds: f64) {
        let dead = self.engine.death().cancelled();
        if seconds == 0.0 {
            return dead.await;
        }
        tokio::select! {
            () = self.engine.clock.sleep(Duration::from_secs_f64(seconds)) => {}
            () = dead => {}
        }
    }

    async fn route(self: &Arc<Self>, found: Match<'_>, request: Request) -> Response {
        let endpoint = match found {
            Match::Found(route) if route.allows(request.method()) => route.endpoint,
            Match::Found(route) => return reply::method_not_allowed(route.methods),
            Match::NotFound | Match::Panel(_) => return reply::not_found(),
        };
        let work = self.clone();
        // handlers differ much in size; one box per request keeps the connection's future small
        let answer: futures_util::future::BoxFuture<'_, Response> = match endpoint {
            Endpoint::Generate => Box::pin(generate::handle(work, request)),
            Endpoint::Chat => Box::pin(chat::handle(work, request)),
            Endpoint::Completions => Box::pin(completions::handle(work, request)),
            Endpoint::Health => Box::pin(health::health(work)),
            Endpoint::Flush => Box::pin(control::flush(work, request)),
            Endpoint::Control(call) => Box::pin(control::handle(work, call, request)),
            Endpoint::Tokenize => Box::pin(tokenize::tokenize(work, request)),
            Endpoint::Detokenize => Box::pin(tokenize::detokenize(work, request)),
            simple => return self.simple(simple, request.uri()),
        };
        answer.await
    }

    /// Endpoints that answer at once, from what is known.
    fn simple(&self, endpoint: Endpoint, uri: &http::Uri) -> Response {
        match endpoint {
            Endpoint::Ready => health::ready(self),
            Endpoint::Ping => health::ping(self),
            Endpoint::Models => info::models(self),
            Endpoint::Model => info::model(self, uri.path()),
            Endpoint::ModelInfo => info::model_info(self),
            Endpoint::ServerInfo => info::server_info(self),
            Endpoint::Loads => loads::loads(self, uri.query()),
            Endpoint::Metrics => metrics::metrics(self),
            _ => reply::not_found(),
        }
    }

    /// The value of a query parameter.
    pub(crate) fn query(query: Option<&str>, name: &str) -> Option<String> {
        let pairs: BTreeMap<_, _> = query?
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .collect();
        pairs.get(name).map(|value| (*value).to_owned())
    }
}
