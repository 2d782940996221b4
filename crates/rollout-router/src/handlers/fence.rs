//! `POST /fence`, `DELETE /fence`.

use std::sync::Arc;

use http::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use super::abort::{Terms, announce};
use super::{job_or_default, json, read, seconds, session_ids};
use crate::abort::EngineReport;
use crate::body::Body;
use crate::error::ApiError;
use crate::flights::FenceScope;
use crate::session::Phase;
use crate::state::Inner;

#[derive(Deserialize)]
struct FenceBody {
    job: Option<Arc<str>>,
    #[serde(default)]
    rollout_id: Option<i64>,
    #[serde(default)]
    session_ids: Option<Vec<String>>,
    #[serde(default)]
    deadline_seconds: Option<f64>,
    #[serde(default)]
    agent_abort: Option<Terms>,
}

#[derive(Serialize)]
struct FenceReport {
    sessions: usize,
    requests: usize,
    engines: Vec<EngineReport>,
    left: usize,
    unproven: usize,
    millis: u64,
}

pub(crate) async fn fence(inner: &Arc<Inner>, body: &[u8]) -> Result<Response<Body>, ApiError> {
    let body: FenceBody = read(body)?;
    let deadline = seconds(body.deadline_seconds, 5.0)?;
    let name = job_or_default(inner, body.job)?;
    let job = inner.jobs.of(&name);
    let order = body.agent_abort.map(Terms::order).transpose()?;
    let scope = FenceScope::Job {
        job: name,
        rollout_id: body.rollout_id,
        sessions: body.session_ids.map(|ids| session_ids(&ids)).transpose()?,
    };
    let started = Instant::now();
    let sessions = open_sessions(inner, &scope);
    let (requests, sent) = inner.flights.fence(scope.clone());
    // Before the first request is aborted: an agent that ends with it must find the order when its launcher reports.
    if let Some(order) = order {
        announce(inner, &job, &scope, order);
    }
    for (_, job) in inner.jobs.all() {
        job.work.notify_waiters();
    }
    let aborts = inner.aborter.abort_until_ended(sent.clone(), deadline);
    let engines = aborts.await;
    inner.aborter.keep_aborting(sent);
    inner.metrics.fence(started.elapsed());
    json(&FenceReport {
        sessions,
        requests,
        left: engines.iter().map(|report| report.left).sum(),
        unproven: engines.iter().map(|report| report.unproven).sum(),
        engines,
        millis: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

fn open_sessions(inner: &Inner, scope: &FenceScope) -> usize {
    let sessions = inner.sessions.all();
    let fenced = sessions
        .iter()
        .filter(|session| scope.covers(&session.scope()));
    fenced
        .filter(|session| !matches!(session.state.lock().phase, Phase::Ended(_)))
        .count()
}

pub(crate) fn unfence(inner: &Inner, body: &[u8]) -> Result<Response<Body>, ApiError> {
    let body: FenceBody = read(body)?;
    let job = job_or_default(inner, body.job)?;
    let opened = inner.flights.unfence(&job);
    let job = inner.jobs.of(&job);
    job.aborting.lock().clear();
    // Sessions that waited behind the fence can be claimed.
    job.work.notify_waiters();
    json(&json!({"opened": opened}))
}
