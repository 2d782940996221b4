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

use super::fence::{job_or_default, seconds, session_ids};
use super::{json, read};
use crate::auth::Holder;
use crate::body::Body;
use crate::ending::{self, Report};
use crate::engines::Engine;
use crate::error::ApiError;
use crate::flights::{FenceScope, Sent};
use crate::jobs::{AbortOrder, HookResult};
use crate::router::Inner;
use crate::session::{Outcome, Phase, Session};

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

/// Tells every launcher with a session of the scope to abort its agents, and waits for what their hooks did.
pub(crate) async fn agent_abort(
    inner: &Arc<Inner>,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let body: AgentAbortBody = read(body)?;
    let timeout = seconds(body.timeout_seconds, 30.0)?;
    let drain = seconds(body.drain_seconds, 0.0)?;
    let scope = FenceScope::Job {
        job: job_or_default(inner, body.job)?,
        rollout_id: body.rollout_id,
        sessions: body.session_ids.map(|ids| session_ids(&ids)).transpose()?,
    };
    let order = Arc::new(AbortOrder::new(
        body.reason.unwrap_or_else(|| "aborted".to_owned()),
        timeout.as_secs_f64(),
        body.drain_seconds,
        body.args,
    ));
    let (sessions, held) = announce(inner, &scope, &order);
    let deadline = Instant::now() + timeout.max(drain) + REPORT_GRACE;
    let late = tokio::select! {
        in_time = tokio::time::timeout_at(deadline, all_ended(inner, &held)) => in_time.is_err(),
        () = inner.last_call.reports_due() => true,
    };
    if late {
        for (session, _, _) in &held {
            let error = "the launcher did not report after the abort".to_owned();
            ending::end(inner, session, Report::plain(Outcome::Aborted, Some(error)));
        }
    }
    json(&summary(sessions, &held, late))
}

type Held = (Arc<Session>, Holder, Arc<AbortOrder>);

/// Gives the order to every session of the scope. One that nobody has claimed ends at once; one that has an order keeps it.
fn announce(inner: &Arc<Inner>, scope: &FenceScope, order: &Arc<AbortOrder>) -> (usize, Vec<Held>) {
    let mut sessions = 0;
    let mut held = Vec::new();
    for session in inner.sessions.all() {
        if !scope.covers(&session.scope()) {
            continue;
        }
        let mut state = session.state.lock();
        match state.phase.clone() {
            Phase::Assigned(assignment) => {
                let order = state.abort.get_or_insert_with(|| Arc::clone(order));
                let order = Arc::clone(order);
                drop(state);
                session.changed.notify_waiters();
                held.push((session, assignment.holder, order));
            }
            Phase::Queued => {
                drop(state);
                ending::end(inner, &session, Report::plain(Outcome::Aborted, None));
            }
            Phase::Open | Phase::Ended(_) => continue,
        }
        sessions += 1;
    }
    (sessions, held)
}

async fn all_ended(inner: &Inner, held: &[Held]) {
    loop {
        let ended = inner.sessions.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        let open = held
            .iter()
            .any(|(session, _, _)| is_assigned(inner, session));
        if !open {
            return;
        }
        ended.await;
    }
}

fn is_assigned(inner: &Inner, session: &Session) -> bool {
    inner.sessions.get(session.id).is_ok()
        && matches!(session.state.lock().phase, Phase::Assigned(_))
}

/// Counts hooks per process: whatever the number of its sessions, its hook ran once.
fn summary(sessions: usize, held: &[Held], late: bool) -> Value {
    let mut launchers: HashMap<&Holder, Option<HookResult>> = HashMap::new();
    let mut errors: Vec<String> = Vec::new();
    for (_, holder, order) in held {
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
