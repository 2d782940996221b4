//! `POST /abort_request` and `POST /agent-abort`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::uri::PathAndQuery;
use http::{Method, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{job_or_default, json, read, seconds, session_ids};
use crate::auth::Holder;
use crate::body::Body;
use crate::ending::{self, Report};
use crate::engines::Engine;
use crate::error::ApiError;
use crate::flights::{FenceScope, Sent};
use crate::id::HexId;
use crate::jobs::{AbortOrder, Held, HookResult, Job};
use crate::session::{Outcome, Phase};
use crate::state::Inner;

/// How long a launcher may take to report after the hook's time and the drain are over.
const REPORT_GRACE: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
struct AbortBody {
    #[serde(default)]
    rid: Option<String>,
    #[serde(default)]
    abort_all: bool,
}

pub(crate) async fn abort_request(
    inner: &Arc<Inner>,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let AbortBody { rid, abort_all } = read(body)?;
    if abort_all {
        let engines = inner.engines.all();
        let mut calls = Vec::with_capacity(engines.len());
        for engine in engines.iter() {
            calls.push(tell(inner, engine, json!({"abort_all": true})));
        }
        let results = join_all(calls).await;
        let reports: Vec<Value> = engines
            .iter()
            .zip(results)
            .map(|(engine, status)| report(engine, &status, None))
            .collect();
        return json(&json!({"engines": reports}));
    }
    let rid = rid
        .filter(|rid| !rid.is_empty())
        .ok_or_else(|| ApiError::BadRequest("give rid, or abort_all: true".to_owned()))?;
    let sent = inner
        .flights
        .find(&rid)
        .ok_or_else(|| ApiError::NotFound(format!("no request {rid} is in flight")))?;
    let status = tell(inner, &sent.engine, json!({"rid": rid})).await;
    // An abort that overtakes its request is lost: it is repeated until the request has ended.
    inner.aborter.abort_in_background(vec![Sent {
        rids: Arc::from([rid]),
        ..sent.clone()
    }]);
    json(&json!({"engines": [report(&sent.engine, &status, Some(true))]}))
}

async fn tell(inner: &Inner, engine: &Engine, body: Value) -> Result<u16, String> {
    let path = PathAndQuery::from_static("/abort_request");
    let body = Bytes::from(body.to_string());
    let answer = inner
        .upstream
        .control(engine, Method::POST, path, body)
        .await;
    answer
        .map(|(status, _)| status.as_u16())
        .map_err(|error| error.to_string())
}

fn report(engine: &Engine, status: &Result<u16, String>, found: Option<bool>) -> Value {
    match status {
        Ok(status) => json!({"url": engine.url(), "status": status, "found": found}),
        Err(error) => json!({"url": engine.url(), "status": null, "found": found, "error": error}),
    }
}

#[derive(Deserialize)]
struct AgentAbortBody {
    job: Option<Arc<str>>,
    #[serde(default)]
    rollout_id: Option<i64>,
    #[serde(default)]
    session_ids: Option<Vec<String>>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    timeout_seconds: Option<f64>,
    #[serde(default)]
    drain_seconds: Option<f64>,
    #[serde(default)]
    args: Option<Box<RawValue>>,
}

/// What launchers are told of an abort.
#[derive(Deserialize)]
pub(super) struct Terms {
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    timeout_seconds: Option<f64>,
    #[serde(default)]
    drain_seconds: Option<f64>,
    #[serde(default)]
    args: Option<Box<RawValue>>,
}

impl Terms {
    fn timeout(&self) -> Result<Duration, ApiError> {
        seconds(self.timeout_seconds, 30.0)
    }

    pub(super) fn order(self) -> Result<Arc<AbortOrder>, ApiError> {
        let timeout = self.timeout()?;
        Ok(Arc::new(AbortOrder::new(
            self.reason.unwrap_or_else(|| "aborted".to_owned()),
            timeout.as_secs_f64(),
            self.drain_seconds,
            self.args,
        )))
    }
}

/// Tells every launcher with a session of the scope to abort its agents, unless a fence did, and waits for what their hooks did.
pub(crate) async fn agent_abort(
    inner: &Arc<Inner>,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let body: AgentAbortBody = read(body)?;
    let drain = seconds(body.drain_seconds, 0.0)?;
    let name = job_or_default(inner, body.job)?;
    let job = inner.jobs.of(&name);
    let scope = FenceScope::Job {
        job: name,
        rollout_id: body.rollout_id,
        sessions: body.session_ids.map(|ids| session_ids(&ids)).transpose()?,
    };
    let terms = Terms {
        reason: body.reason,
        timeout_seconds: body.timeout_seconds,
        drain_seconds: body.drain_seconds,
        args: body.args,
    };
    let timeout = terms.timeout()?;
    let unclaimed = announce(inner, &job, &scope, terms.order()?);
    let mut held = job.aborting.lock().clone();
    held.retain(|held| scope.covers(&held.scope));
    let sessions = unclaimed + held.len();
    let deadline = Instant::now() + timeout.max(drain) + REPORT_GRACE;
    let late = tokio::select! {
        in_time = tokio::time::timeout_at(deadline, all_ended(inner, &held)) => in_time.is_err(),
        () = inner.last_call.reports_due() => true,
    };
    if late {
        for held in &held {
            if let Ok(session) = inner.sessions.get(held.session) {
                let error = "the launcher did not report after the abort".to_owned();
                ending::end(
                    inner,
                    &session,
                    Report::plain(Outcome::Aborted, Some(error)),
                );
            }
        }
    }
    json(&summary(sessions, &held, late))
}

/// Gives the order to every session of the scope that has none. One that nobody has claimed ends at once; those are counted. A job has one
/// order until its admission is opened again: the hook runs once per process, however often it is asked for.
pub(super) fn announce(
    inner: &Arc<Inner>,
    job: &Job,
    scope: &FenceScope,
    order: Arc<AbortOrder>,
) -> usize {
    let mut aborting = job.aborting.lock();
    let earlier = aborting.iter().find(|held| scope.covers(&held.scope));
    let order = earlier.map_or(order, |held| Arc::clone(&held.order));
    let mut unclaimed = Vec::new();
    for session in inner.sessions.all() {
        if !scope.covers(&session.scope()) {
            continue;
        }
        let mut state = session.state.lock();
        match &state.phase {
            Phase::Assigned(assignment) if state.abort.is_none() => {
                aborting.push(Held {
                    session: session.id,
                    scope: session.scope(),
                    holder: assignment.holder.clone(),
                    order: Arc::clone(&order),
                });
                state.abort = Some(Arc::clone(&order));
                session.changed.notify_waiters();
            }
            Phase::Queued => {
                drop(state);
                unclaimed.push(session);
            }
            Phase::Assigned(_) | Phase::Open | Phase::Ended(_) => {}
        }
    }
    drop(aborting);
    for session in &unclaimed {
        ending::end(inner, session, Report::plain(Outcome::Aborted, None));
    }
    unclaimed.len()
}

async fn all_ended(inner: &Inner, held: &[Held]) {
    loop {
        let ended = inner.sessions.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        let open = held.iter().any(|held| is_assigned(inner, held.session));
        if !open {
            return;
        }
        ended.await;
    }
}

fn is_assigned(inner: &Inner, session: HexId) -> bool {
    let session = inner.sessions.get(session);
    session.is_ok_and(|session| matches!(session.state.lock().phase, Phase::Assigned(_)))
}

/// Counts hooks per process: whatever the number of its sessions, its hook ran once.
fn summary(sessions: usize, held: &[Held], late: bool) -> Value {
    let mut launchers: HashMap<&Holder, Option<HookResult>> = HashMap::new();
    let mut errors: Vec<String> = Vec::new();
    for Held { holder, order, .. } in held {
        if let Some(Some(_)) = launchers.get(holder) {
            continue;
        }
        let report = order.report_of(holder);
        if let Some(error) = report.as_ref().and_then(|report| report.error.clone()) {
            errors.push(format!("slot {}: {error}", holder.slot));
        }
        launchers.insert(holder, report.map(|report| report.result));
    }
    let mut counts: HashMap<HookResult, usize> = HashMap::new();
    for (holder, result) in &launchers {
        let result = result.unwrap_or(if late {
            HookResult::TimedOut
        } else {
            HookResult::None
        });
        if result == HookResult::TimedOut {
            errors.push(format!(
                "slot {}: the hook did not end in time",
                holder.slot
            ));
        }
        *counts.entry(result).or_default() += 1;
    }
    errors.sort();
    errors.truncate(64);
    let count = |result| counts.get(&result).copied().unwrap_or(0);
    json!({
        "launchers": launchers.len(),
        "sessions": sessions,
        "hooks": {
            "succeeded": count(HookResult::Succeeded),
            "none": count(HookResult::None),
            "failed": count(HookResult::Failed),
            "timed_out": count(HookResult::TimedOut),
        },
        "errors": errors,
    })
}
