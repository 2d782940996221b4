//! The routes.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::drain::{Drain, End, Seen, Times};
use super::engine::{Engine, Known};
use super::keeper::{Keeper, Keeping};
use super::tokenizer::{self, NoFile, Place};

/// Between two looks at an engine that drains.
const LOOK: Duration = Duration::from_millis(500);

/// What the routes need.
#[derive(Debug)]
pub(super) struct Sidecar {
    engine: Arc<Engine>,
    times: Times,
    files: Place,
    keeper: Arc<Keeper>,
    /// When the first drain began: all of them share its time.
    draining: Mutex<Option<Instant>>,
}

impl Sidecar {
    pub(super) fn new(engine: Engine, times: Times, files: Place, keeping: Keeping) -> Arc<Self> {
        Arc::new(Self {
            engine: Arc::new(engine),
            times,
            files,
            keeper: Arc::new(Keeper::new(keeping)),
            draining: Mutex::new(None),
        })
    }

    pub(super) fn routes(self: Arc<Self>) -> Router {
        Router::new()
            .route("/state", get(state))
            .route("/started", get(started))
            // A preStop hook of Kubernetes can only GET.
            .route("/drain", get(drain).post(drain))
            .route("/tokenizer/{file}", get(file))
            .route("/health", get(|| async { "ok" }))
            .with_state(self)
    }

    /// Takes note of the engine's weights, for ever.
    pub(super) async fn watch(&self) {
        self.keeper.watch(&self.engine).await;
    }

    /// Looks at the engine until it has ended its work, or the time is over. Answers what was seen last.
    async fn drain(&self) -> (End, Seen, Duration) {
        let began = *self.draining.lock().get_or_insert_with(Instant::now);
        let mut drain = Drain::new(self.times, began);
        let mut last = Seen::Unknown("it was not asked".to_owned());
        loop {
            let look = self.engine.look();
            let seen = tokio::time::timeout_at(drain.deadline(), look).await;
            // The time is over: what was seen before is the latest that is known.
            let seen = seen.unwrap_or(last);
            if let Some(end) = drain.see(&seen, Instant::now()) {
                return (end, seen, drain.began().elapsed());
            }
            last = seen;
            let next = (Instant::now() + LOOK).min(drain.deadline());
            tokio::time::sleep_until(next).await;
        }
    }
}

async fn state(State(sidecar): State<Arc<Sidecar>>) -> Response {
    let Known {
        weights,
        paused,
        server_version,
        error,
    } = sidecar.engine.known().await;
    let draining = sidecar.draining.lock().is_some();
    Json(json!({
        "version": weights.and_then(|weights| weights.version),
        "checkpoint": sidecar.keeper.told(),
        // Nobody requires one yet.
        "required": null,
        "paused": paused,
        "draining": draining,
        "server_version": server_version,
        "error": error,
        "trouble": sidecar.keeper.trouble(),
    }))
    .into_response()
}

/// What the kubelet asks until it is so, each time that the engine begins.
async fn started(State(sidecar): State<Arc<Sidecar>>) -> Response {
    match sidecar.keeper.start(&sidecar.engine).await {
        Ok(()) => "started".into_response(),
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem).into_response(),
    }
}

async fn drain(State(sidecar): State<Arc<Sidecar>>) -> Response {
    tracing::info!("the engine drains");
    let (end, seen, took) = sidecar.drain().await;
    let (requests, error) = match seen {
        Seen::Requests(count) => (Some(count), None),
        Seen::Paused => (None, Some("the engine is paused".to_owned())),
        Seen::Gone => (None, None),
        Seen::Unknown(error) => (None, Some(error)),
    };
    tracing::info!(?end, ?requests, ?error, ?took, "the drain has ended");
    // A hook that fails is an event of its pod: somebody wants to know.
    let status = match end {
        End::Idle | End::Gone => StatusCode::OK,
        End::TimedOut => StatusCode::GATEWAY_TIMEOUT,
    };
    let body = json!({
        "end": end,
        "requests": requests,
        "seconds": took.as_secs_f64(),
        "error": error,
    });
    (status, Json(body)).into_response()
}

async fn file(State(sidecar): State<Arc<Sidecar>>, Path(name): Path<String>) -> Response {
    let refusal = match tokenizer::serve(&sidecar.files, &name).await {
        Ok(response) => return response,
        Err(refusal) => refusal,
    };
    let (status, code) = match &refusal {
        NoFile::Unreadable { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "unreadable"),
        // Ask again.
        NoFile::NotDownloaded { .. } => (StatusCode::SERVICE_UNAVAILABLE, "not_downloaded"),
        _ => (StatusCode::NOT_FOUND, "not_found"),
    };
    let message = refusal.to_string();
    let body = json!({"error": {"message": message, "type": code, "code": code}});
    (status, Json(body)).into_response()
}
