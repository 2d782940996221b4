//! What a launcher says and asks about a session that it has claimed. Only the pod that holds the session may.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::claim::holder;
use super::{json, no_content, parameter, read};
use crate::auth::Holder;
use crate::body::Body;
use crate::ending::{self, Report};
use crate::error::ApiError;
use crate::id::HexId;
use crate::jobs::{AbortOrder, HookReport};
use crate::session::{Outcome, Phase, Session};
use crate::state::Inner;

const LONGEST_WAIT: f64 = 30.0;
/// Before an event is given again to a launcher that asks without saying that it has it.
const REPEAT: Duration = Duration::from_secs(1);

fn not_claimed(id: HexId) -> ApiError {
    ApiError::Forbidden(format!("session {} is not claimed", id.short()))
}

fn held(inner: &Inner, id: HexId, parts: &Parts) -> Result<(Arc<Session>, Holder), ApiError> {
    let caller = holder(inner, parts)?;
    let session = inner.sessions.get(id)?;
    if session.spec.job.as_deref() != Some(caller.job.as_str()) {
        return Err(ApiError::SessionNotFound(id.as_str().to_owned()));
    }
    if let Phase::Assigned(assignment) = &session.state.lock().phase
        && assignment.holder != caller
    {
        return Err(ApiError::Forbidden(format!(
            "session {} is held by another pod",
            id.short()
        )));
    }
    Ok((session, caller))
}

pub(crate) fn heartbeat(
    inner: &Inner,
    id: HexId,
    parts: &Parts,
) -> Result<Response<Body>, ApiError> {
    let (session, holder) = held(inner, id, parts)?;
    let mut state = session.state.lock();
    let aborting = state.abort.is_some();
    let answer = match &mut state.phase {
        Phase::Assigned(assignment) => {
            assignment.heartbeat_at = Instant::now();
            inner.jobs.of(&holder.job).note_loaded_agent();
            if aborting { "aborting" } else { "running" }
        }
        Phase::Ended(_) => "ended",
        Phase::Open | Phase::Queued => {
            return Err(not_claimed(id));
        }
    };
    drop(state);
    json(&json!({"state": answer}))
}

pub(crate) async fn events(
    inner: &Inner,
    id: HexId,
    parts: &Parts,
) -> Result<Response<Body>, ApiError> {
    let (session, _) = held(inner, id, parts)?;
    let query = parts.uri.query();
    let wait = parameter(query, "wait_seconds")
        .and_then(|seconds| seconds.parse::<f64>().ok())
        .filter(|seconds| seconds.is_finite())
        .unwrap_or(0.0);
    let wait = Duration::from_secs_f64(wait.clamp(0.0, LONGEST_WAIT));
    let seen = parameter(query, "seen").unwrap_or_default();
    let order = wait_for_order(&session, seen);
    let order = tokio::select! {
        order = tokio::time::timeout(wait, order) => order.ok().flatten(),
        () = inner.stopping.cancelled() => None,
    };
    match order {
        Some(order) => json(&event(&order)),
        None => Ok(no_content()),
    }
}

/// The session's abort order, or `None` when it ended.
async fn wait_for_order(session: &Session, seen: &str) -> Option<Arc<AbortOrder>> {
    loop {
        let changed = session.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let (order, ended) = {
            let state = session.state.lock();
            let ended = matches!(state.phase, Phase::Ended(_));
            (state.abort.clone(), ended)
        };
        match order {
            Some(order) if order.id.as_str() != seen => {
                if order.deliver(session.id) {
                    return Some(order);
                }
                tokio::time::sleep(REPEAT).await;
                return Some(order);
            }
            _ if ended => return None,
            _ => changed.await,
        }
    }
}

fn event(order: &AbortOrder) -> Value {
    let mut event = json!({
        "event": "abort",
        "reason": order.reason,
        "abort_id": order.id,
        "timeout_seconds": order.timeout_seconds,
        "args": super::session::parsed(order.args.as_deref()),
    });
    if event["args"].is_null() {
        event["args"] = json!({});
    }
    if let Some(drain) = order.drain_seconds {
        event["drain_seconds"] = json!(drain);
    }
    event
}

#[derive(Deserialize)]
struct ResultBody {
    outcome: Outcome,
    #[serde(default)]
    exit_code: Option<i64>,
    #[serde(default)]
    signal: Option<i64>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    log_tail: Option<String>,
    #[serde(default)]
    agent_seconds: Option<f64>,
    #[serde(default)]
    hook: Option<HookReport>,
    /// The launcher can still run the hook of this session's process.
    #[serde(default)]
    runs_hooks: bool,
}

pub(crate) fn result(
    inner: &Arc<Inner>,
    id: HexId,
    parts: &Parts,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let (session, caller) = held(inner, id, parts)?;
    let body: ResultBody = read(body)?;
    {
        let state = session.state.lock();
        if matches!(state.phase, Phase::Open | Phase::Queued) {
            return Err(not_claimed(id));
        }
        match (&state.abort, body.hook) {
            (Some(order), Some(hook)) => order.report(caller, hook),
            // The agent ended before its launcher had heard of the abort.
            (Some(order), None)
                if body.runs_hooks
                    && matches!(state.phase, Phase::Assigned(_))
                    && order.report_of(&caller).is_none() =>
            {
                return json(&json!({"accepted": false, "abort": event(order)}));
            }
            _ => {}
        }
    }
    let accepted = ending::end(
        inner,
        &session,
        Report {
            outcome: body.outcome,
            exit_code: body.exit_code,
            signal: body.signal,
            metadata: body.metadata.unwrap_or_default(),
            error: body.error,
            log_tail: body.log_tail,
            agent_seconds: body.agent_seconds,
        },
    );
    json(&json!({"accepted": accepted}))
}
