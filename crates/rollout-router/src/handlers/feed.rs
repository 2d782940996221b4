//! `GET /outcomes` and `GET /demand`: what driver and controller read.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use serde_json::json;

use super::{json, parameter};
use crate::body::Body;
use crate::error::ApiError;
use crate::flights::Scope;
use crate::session::Phase;
use crate::state::Inner;

const LONGEST_WAIT: f64 = 30.0;
/// Outcomes of one answer.
const AT_MOST: usize = 1_000;

fn job_of(inner: &Inner, query: Option<&str>) -> Result<Arc<str>, ApiError> {
    let named = parameter(query, "job").map(decode_percent).transpose()?;
    named
        .or_else(|| inner.config.job.clone())
        .map(Arc::from)
        .ok_or_else(|| ApiError::BadRequest("the parameter job is missing".to_owned()))
}

/// Resolves `%XX` and `+` of a query parameter.
fn decode_percent(text: &str) -> Result<String, ApiError> {
    let wrong = || ApiError::BadRequest("the parameter job is not UTF-8".to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                let pair = [*high, *low];
                let hex = std::str::from_utf8(&pair).map_err(|_| wrong())?;
                bytes.push(u8::from_str_radix(hex, 16).map_err(|_| wrong())?);
                rest = after;
            }
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

pub(crate) async fn outcomes(
    inner: &Inner,
    query: Option<&str>,
) -> Result<Response<Body>, ApiError> {
    let name = job_of(inner, query)?;
    let number = |key: &str| parameter(query, key).map(str::parse::<f64>);
    let after = match parameter(query, "after").map(str::parse::<u64>) {
        None => 0,
        Some(Ok(after)) => after,
        Some(Err(_)) => {
            return Err(ApiError::BadRequest("after must be a number".to_owned()));
        }
    };
    let wait = match number("wait_seconds") {
        None => 0.0,
        Some(Ok(wait)) if wait.is_finite() => wait.clamp(0.0, LONGEST_WAIT),
        Some(_) => {
            return Err(ApiError::BadRequest(
                "wait_seconds must be a number".to_owned(),
            ));
        }
    };
    let job = inner.jobs.of(&name);
    let news = async {
        loop {
            let news = job.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let (next, records) = job.outcomes.lock().from(after, AT_MOST);
            if !records.is_empty() || inner.stopping.is_cancelled() {
                return (next, records);
            }
            news.await;
        }
    };
    let (next, records) = tokio::time::timeout(Duration::from_secs_f64(wait), news)
        .await
        .unwrap_or_else(|_| job.outcomes.lock().from(after, AT_MOST));
    json(&json!({
        "session_server_instance_id": inner.instance,
        "next": next,
        "agents_loaded": job.agents_loaded(),
        "outcomes": records,
    }))
}

pub(crate) fn demand(inner: &Inner, query: Option<&str>) -> Result<Response<Body>, ApiError> {
    let name = job_of(inner, query)?;
    let job = inner.jobs.of(&name);
    let mut waiting = 0;
    let mut assigned = 0;
    for session in inner.sessions.all() {
        if session.spec.job.as_ref() != Some(&name) {
            continue;
        }
        match session.state.lock().phase {
            Phase::Queued if inner.flights.check(&session.scope()).is_ok() => waiting += 1,
            Phase::Assigned(_) => assigned += 1,
            _ => {}
        }
    }
    let scope = Scope {
        job: Some(name),
        ..Scope::default()
    };
    json(&json!({
        "waiting": waiting,
        "assigned": assigned,
        "idle_claims": job.idle_claims(),
        "closed": inner.flights.check(&scope).is_err(),
    }))
}
