//! One function per route: read the request, ask the parts, write the answer.

pub(crate) mod abort;
pub(crate) mod claim;
pub(crate) mod collect;
pub(crate) mod create;
pub(crate) mod every_engine;
pub(crate) mod feed;
pub(crate) mod fence;
pub(crate) mod forward;
pub(crate) mod launcher;
pub(crate) mod plain;
pub(crate) mod pod;
pub(crate) mod session;
pub(crate) mod workers;

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body::Body;
use crate::chat::Reply;
use crate::error::ApiError;
use crate::id::HexId;
use crate::state::Inner;

/// Longest duration that a request may give.
const LONGEST: f64 = 600.0;

/// 200 with JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<Response<Body>, ApiError> {
    let body = serde_json::to_vec(value).map_err(|error| ApiError::Internal(error.to_string()))?;
    Ok(Reply::json(body).into_response())
}

pub(crate) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Reads a JSON body; an empty one counts as an empty object.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body = if body.iter().all(u8::is_ascii_whitespace) {
        b"{}"
    } else {
        body
    };
    serde_json::from_slice(body)
        .map_err(|error| ApiError::BadRequest(format!("invalid JSON body: {error}")))
}

/// A parameter of the query.
pub(crate) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    query?
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))
}

pub(crate) fn job_or_default(inner: &Inner, job: Option<Arc<str>>) -> Result<Arc<str>, ApiError> {
    job.or_else(|| inner.config.job.as_deref().map(Arc::from))
        .ok_or_else(|| ApiError::BadRequest("job is missing".to_owned()))
}

pub(crate) fn session_ids(ids: &[String]) -> Result<Vec<HexId>, ApiError> {
    ids.iter()
        .map(|id| {
            HexId::parse(id)
                .ok_or_else(|| ApiError::BadRequest(format!("session_ids: {id} is no session id")))
        })
        .collect()
}

/// A duration of a request, bounded.
pub(crate) fn seconds(given: Option<f64>, default: f64) -> Result<Duration, ApiError> {
    let seconds = given.unwrap_or(default);
    if !seconds.is_finite() || seconds < 0.0 {
        return Err(ApiError::BadRequest(
            "seconds must be a number that is not negative".to_owned(),
        ));
    }
    Ok(Duration::from_secs_f64(seconds.min(LONGEST)))
}
