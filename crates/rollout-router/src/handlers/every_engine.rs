//! Control calls that go to every engine: pauses, caches, weights, memory.
//!
//! The answer has a result for each engine, and is 207 when one of them failed. Once begun, a call is brought to its end also when its client is
//! gone: half of the engines with new weights is worse than any answer that nobody reads.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::body::Body;
use crate::chat::Reply;
use crate::engines::Engine;
use crate::error::ApiError;
use crate::state::Inner;

/// Engines that are called at the same time.
const AT_ONCE: usize = 32;
/// Most bytes of an answer that is no JSON and is shown as text.
const SHOWN: usize = 4096;

/// One call.
pub(crate) async fn call(
    inner: &Arc<Inner>,
    method: Method,
    path: &'static str,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let engines = inner.engines.all();
    if engines.is_empty() {
        return Err(ApiError::NoEngine(inner.engines.why_none()));
    }
    let working = Arc::clone(inner);
    let calls = inner.tasks.spawn(async move {
        let calls = engines
            .iter()
            .map(|engine| one(&working, engine, &method, path, &body));
        stream::iter(calls.collect::<Vec<_>>())
            .buffered(AT_ONCE)
            .collect::<Vec<_>>()
            .await
    });
    let results = calls
        .await
        .map_err(|error| ApiError::Internal(error.to_string()))?;
    let failed = results.iter().filter(|(_, succeeded)| !succeeded).count();
    if failed > 0 {
        tracing::warn!(
            path,
            failed,
            engines = results.len(),
            "engines failed a control call"
        );
    }
    let results: Vec<Value> = results.into_iter().map(|(result, _)| result).collect();
    let mut reply = Reply::json(json!({"engines": results}).to_string());
    if failed > 0 {
        reply.status = StatusCode::MULTI_STATUS;
    }
    Ok(reply.into_response())
}

/// What one engine said, and whether it is a success.
async fn one(
    inner: &Inner,
    engine: &Engine,
    method: &Method,
    path: &'static str,
    body: &Bytes,
) -> (Value, bool) {
    let limit = inner.config.times.every_engine;
    let (method, path) = (method.clone(), PathAndQuery::from_static(path));
    let answer = inner
        .upstream
        .control_within(engine, method, path, body.clone(), limit)
        .await;
    match answer {
        Ok((status, body)) => {
            let result = json!({
                "url": engine.url(),
                "status": status.as_u16(),
                "body": shown(&body),
            });
            (result, status.is_success())
        }
        Err(error) => {
            let error = error.to_string();
            (
                json!({"url": engine.url(), "status": null, "error": error}),
                false,
            )
        }
    }
}

fn shown(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]);
        Value::String(text.into_owned())
    })
}
