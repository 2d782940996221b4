//! Health, readiness, status, metrics.

use std::collections::BTreeMap;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;
use crate::chat::Reply;
use crate::engines::Discovery;
use crate::error::ApiError;
use crate::state::Inner;

/// We serve.
pub(crate) fn health(inner: &Inner) -> Response<Body> {
    let body = json!({"status": "ok", "session_server_instance_id": inner.instance});
    Reply::json(body.to_string()).into_response()
}

/// Whether work can be done, and what is missing.
pub(crate) fn ready(inner: &Inner) -> Response<Body> {
    let mut missing: Vec<String> = inner.engines.missing().into_iter().collect();
    if inner.stopping.is_cancelled() {
        missing.push("the router is stopping".to_owned());
    }
    let discovery = inner.engines.discovery();
    let trouble = discovery.and_then(Discovery::trouble);
    // Without any engine it is said as what is missing.
    let warnings: Vec<String> = trouble
        .filter(|_| !inner.engines.all().is_empty())
        .into_iter()
        .collect();
    let body = json!({"ready": missing.is_empty(), "missing": missing, "warnings": warnings});
    let mut reply = Reply::json(body.to_string());
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
    let list = inner.engines.all();
    let engines: Vec<Value> = list
        .iter()
        .map(|engine| {
            json!({
                "url": engine.url(),
                "healthy": engine.is_healthy(),
                "draining": engine.is_draining(),
                "paused": engine.is_paused(),
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
        "engine_service": inner.engines.discovery().map(Discovery::status),
    });
    Reply::json(body.to_string()).into_response()
}

pub(crate) fn metrics(inner: &Inner) -> Result<Response<Body>, ApiError> {
    let text = inner
        .metrics
        .text(&inner.sessions, &inner.engines)
        .map_err(|error| ApiError::Internal(error.to_string()))?;
    let mut reply = Reply::json(text);
    reply.headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8"),
    );
    Ok(reply.into_response())
}
