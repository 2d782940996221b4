//! `/healthz` (the process serves), `/readyz` (names what is missing) and `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::health::Health;
use super::metrics::Metrics;

#[derive(Clone)]
struct Shown {
    health: Health,
    metrics: Arc<Metrics>,
}

/// The server as a value, which a test can ask without a socket.
pub fn routes(health: Health, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(figures))
        .with_state(Shown { health, metrics })
}

/// Serves until told to stop.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

async fn ready(State(shown): State<Shown>) -> (StatusCode, String) {
    let missing = shown.health.report();
    if missing.is_empty() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("{}\n", missing.join("\n")),
    )
}

async fn figures(State(shown): State<Shown>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], shown.metrics.text())
}
