//! The list of engines, as the routers of SGLang and Miles show it and let it be changed.
//!
//! `/add_worker`, `/remove_worker` and `/list_workers` are the older dialect, `/workers` the newer one. Where they let a repeated call fail,
//! the older ones succeed here: what was asked for is so. An engine that is taken away gets nothing new, ends what it has, and is forgotten
//! then; added before that, it serves again.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{json, read};
use crate::body::Body;
use crate::chat::Reply;
use crate::engines::{Arrival, Engine};
use crate::error::ApiError;
use crate::state::Inner;

/// The only kind that this router knows.
const KIND: &str = "regular";

#[derive(Deserialize)]
struct NewWorker {
    url: Option<String>,
    #[serde(default)]
    worker_type: Option<String>,
    #[serde(default)]
    api_key: Option<Value>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(alias = "worker_url")]
    url: Option<String>,
}

/// `GET /workers`.
pub(crate) fn list(inner: &Inner) -> Result<Response<Body>, ApiError> {
    let engines = inner.engines.all();
    let workers: Vec<Value> = engines.iter().map(|engine| worker(engine)).collect();
    let count = workers.len();
    json(&json!({
        "workers": workers,
        "total": count,
        "stats": {"prefill_count": 0, "decode_count": 0, "regular_count": count},
    }))
}

/// `GET /list_workers`.
pub(crate) fn urls(inner: &Inner) -> Result<Response<Body>, ApiError> {
    let engines = inner.engines.all();
    let urls: Vec<&str> = engines.iter().map(|engine| engine.url()).collect();
    json(&json!({"urls": urls}))
}

/// `GET /workers/{id}`.
pub(crate) fn get(inner: &Inner, name: &str) -> Result<Response<Body>, ApiError> {
    let engine = inner.engines.find(&decoded(name));
    let engine = engine.ok_or_else(|| unknown(name))?;
    json(&worker(&engine))
}

/// `POST /workers`: the engine takes work from now on; it is not waited for.
pub(crate) fn accept(inner: &Inner, body: &[u8]) -> Result<Response<Body>, ApiError> {
    let NewWorker {
        url,
        worker_type,
        api_key,
    } = read(body)?;
    if worker_type.is_some_and(|kind| kind != KIND) {
        return Err(ApiError::BadRequest(format!(
            "worker_type: all engines of this router are of one kind, {KIND}"
        )));
    }
    if api_key.is_some_and(|key| !key.is_null()) {
        return Err(ApiError::BadRequest(
            "api_key: all engines of this router have one key, which it is started with".to_owned(),
        ));
    }
    let url = given(url)?;
    let (engine, arrival) = inner
        .engines
        .add(&url)
        .map_err(|error| ApiError::BadRequest(error.to_string()))?;
    if arrival == Arrival::Known {
        return Err(ApiError::Conflict(format!(
            "{} is a worker already",
            engine.url()
        )));
    }
    let location = format!("/workers/{}", engine.id().as_str());
    let body = json!({
        "status": "accepted",
        "worker_id": engine.id(),
        "url": engine.url(),
        "location": location,
        "message": "the worker takes requests from now on",
    });
    let mut reply = accepted(&body);
    if let Ok(location) = HeaderValue::from_str(&location) {
        reply.headers.insert(LOCATION, location);
    }
    Ok(reply.into_response())
}

/// `POST /add_worker`.
pub(crate) fn add(
    inner: &Inner,
    query: Option<&str>,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let url = named(query, body)?;
    inner
        .engines
        .add(&url)
        .map_err(|error| ApiError::BadRequest(error.to_string()))?;
    loads(inner)
}

/// `POST /remove_worker`.
pub(crate) fn remove(
    inner: &Inner,
    query: Option<&str>,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let url = named(query, body)?;
    if let Some(engine) = inner.engines.find(&url) {
        take_away(inner, &engine)?;
    }
    loads(inner)
}

/// `DELETE /workers/{id}`; an address in place of the id does too.
pub(crate) fn delete(inner: &Inner, name: &str) -> Result<Response<Body>, ApiError> {
    let engine = inner.engines.find(&decoded(name));
    let engine = engine.ok_or_else(|| unknown(name))?;
    take_away(inner, &engine)?;
    let body = json!({
        "status": "accepted",
        "worker_id": engine.id(),
        "message": "the worker gets nothing new and is forgotten when its requests have ended",
    });
    Ok(accepted(&body).into_response())
}

fn accepted(body: &Value) -> Reply {
    let mut reply = Reply::json(body.to_string());
    reply.status = StatusCode::ACCEPTED;
    reply
}

fn take_away(inner: &Inner, engine: &Engine) -> Result<(), ApiError> {
    if inner.engines.take_away(engine) {
        return Ok(());
    }
    Err(ApiError::Conflict(format!(
        "{} was found as an address of a Service, and would be found again: it leaves with its Pod",
        engine.url()
    )))
}

fn worker(engine: &Engine) -> Value {
    json!({
        "id": engine.id(),
        "url": engine.url(),
        "worker_type": KIND,
        "is_healthy": engine.is_healthy(),
        "load": engine.in_flight(),
        "sessions": engine.sessions(),
        "draining": engine.is_draining(),
        "paused": engine.is_paused(),
        "weight_version": engine.weight_version(),
        "problem": engine.problem(),
    })
}

/// What Miles's router answers: how much each engine has to do.
fn loads(inner: &Inner) -> Result<Response<Body>, ApiError> {
    let engines = inner.engines.all();
    let urls: BTreeMap<&str, usize> = engines
        .iter()
        .filter(|engine| !engine.is_draining())
        .map(|engine| (engine.url(), engine.in_flight()))
        .collect();
    json(&json!({"status": "success", "worker_urls": urls}))
}

fn named(query: Option<&str>, body: &[u8]) -> Result<String, ApiError> {
    let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let mut named = pairs.filter(|(key, _)| key == "url" || key == "worker_url");
    if let Some((_, url)) = named.next() {
        return given(Some(url.into_owned()));
    }
    let Named { url } = read(body)?;
    given(url)
}

fn given(url: Option<String>) -> Result<String, ApiError> {
    let url = url.filter(|url| !url.is_empty());
    url.ok_or_else(|| {
        ApiError::BadRequest(
            "worker_url is required: ?url=http://HOST:PORT, or {\"url\": \"http://HOST:PORT\"}"
                .to_owned(),
        )
    })
}

fn unknown(name: &str) -> ApiError {
    ApiError::NotFound(format!(
        "no worker {}: GET /workers lists them",
        decoded(name)
    ))
}

/// The last part of a path: an id, or an address with its slashes encoded.
fn decoded(name: &str) -> Cow<'_, str> {
    let mut pairs = form_urlencoded::parse(name.as_bytes());
    pairs.next().map_or(Cow::Borrowed(name), |(name, _)| name)
}
