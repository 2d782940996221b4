//! `GET /status` with an `ETag`, `GET /metrics`, `GET /health`, and `POST /pod-ended`. What is read has no secrets and needs no token.

use axum::extract::{FromRef, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Board;
use super::pod_ended::pod_ended;
use crate::digest;
use crate::router::RouterClient;

/// What the server needs.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) board: Board,
    pub(crate) router: RouterClient,
    /// Bearer of what changes something.
    pub(crate) control_token: Option<String>,
}

impl FromRef<Server> for Board {
    fn from_ref(server: &Server) -> Self {
        server.board.clone()
    }
}

/// Serves until `over` is cancelled.
pub(crate) async fn serve(listener: TcpListener, server: Server, over: CancellationToken) {
    let app = Router::new()
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .route("/health", get(|| async { "ok" }))
        .route("/pod-ended", post(pod_ended))
        .with_state(server);
    let ended = axum::serve(listener, app)
        .with_graceful_shutdown(async move { over.cancelled().await })
        .await;
    if let Err(error) = ended {
        tracing::warn!(%error, "the status server ended");
    }
}

async fn status(State(board): State<Board>, headers: HeaderMap) -> Response {
    let body = board.json();
    let tag = etag(&body.to_string());
    let known = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok());
    if known == Some(tag.as_str()) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
    }
    ([(header::ETAG, tag)], Json(body)).into_response()
}

async fn metrics(State(board): State<Board>) -> Response {
    const FORM: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match board.metrics().text() {
        Ok(text) => ([(header::CONTENT_TYPE, FORM)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

fn etag(body: &str) -> String {
    let digest = digest::hex(Sha256::new_with_prefix(body));
    format!("\"{}\"", &digest[..32])
}
