//! Health, readiness, status, metrics.

use std::collections::BTreeMap;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;
use crate::chat::Reply;
use crate::error::ApiError;
use crate::router::Inner;

/// We serve.
pub(crate) fn health(inner: &Inner) -> Response<Body> {
    let body = json!({"status": "ok", "session_server_instance_id": inner.instance});
    Reply::json(body.to_string()).into_response()
}

/// Whether work can be done, and what is missing.
pub(crate) fn ready(inner: &Inner) -> Response<Body> {
    let mut missing = Vec::new();
    if !inner.engines.iter().any(|engine| engine.is_healthy()) {
        missing.push("no engine answers");
    }
    if inner.stopping.is_cancelled() {
        missing.push("the router is stopping");
    }
    let mut reply =
        Reply::json(json!({"ready": missing.is_empty(), "missing": missing}).to_string());
    if !missing.is_empty() {
        reply.status = StatusCode::SERVICE_UNAVAILABLE;
    }
    reply.into_response()
}

pub(crate) fn status(inner: &Inner) -> Response<Body> {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for session in inner.sessions.all() {
        *states
            .entry(session.state.lock().phase.label())
            .or_default() += 1;
    }
    let engines: Vec<Value> = inner
        .engines
        .iter()
        .map(|engine| {
            json!({
                "url": engine.url(),
                "healthy": engine.is_healthy(),
                "draining": false,
                "weight_version": engine.weight_version(),
                "in_flight": engine.in_flight(),
                "sessions": engine.sessions(),
            })
        })
        .collect();
    let body = json!({
        "session_server_instance_id": inner.instance,
        "sessions": states,
        "record_bytes": inner.sessions.bytes(),
        "requests_in_flight": inner.flights.len(),
        "engines": engines,
    });
    Reply::json(body.to_string()).into_response()
}

pub(crate) fn metrics(inner: &Inner) -> Result<Response<Body>, ApiError> {
    let text = inner
        .metrics
        .text(inner)
        .map_err(|error| ApiError::Internal(error.to_string()))?;
    let mut reply = Reply::json(text);
    reply.headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8"),
    );
    Ok(reply.into_response())
}
