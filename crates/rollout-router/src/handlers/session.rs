//! A session by its id: its story, its end, and engine routes that record nothing.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Response};
use rollout_session::{CollectOptions, plan};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{json, no_content, read};
use crate::body::Body;
use crate::chat::Reply;
use crate::ending;
use crate::error::ApiError;
use crate::id::HexId;
use crate::session::{Outcome, Phase, Session, SessionState};
use crate::state::Inner;

/// `GET /sessions/{id}`.
pub(crate) fn get(inner: &Inner, id: HexId) -> Result<Response<Body>, ApiError> {
    let session = inner.sessions.get(id)?;
    let state = session.state.lock();
    let mut records: Vec<Value> = Vec::with_capacity(state.forest.len());
    for (turn_id, turn) in state.forest.turns() {
        let (requested_at, answered_at) = turn.times();
        records.push(json!({
            "timestamp": answered_at,
            "request_timestamp": requested_at,
            "method": "POST",
            "path": if turn.messages().is_some() { "/v1/chat/completions" } else { "/generate" },
            "request": parsed_bytes(&state.forest.request(turn_id)),
            "response": parsed_bytes(turn.response()),
            "status_code": 200,
        }));
    }
    let plan = plan(&state.forest, CollectOptions::default());
    let metadata = plan.assemble(&state.forest, &[]).session_metadata;
    let story = story(&session, &state);
    drop(state);
    json(&json!({
        "session_id": id,
        "records": records,
        "metadata": metadata,
        "story": story,
    }))
}

fn parsed_bytes(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or(Value::Null)
}

/// What somebody wants to know who looks at a session that is stuck.
fn story(session: &Session, state: &SessionState) -> Value {
    let holder = match &state.phase {
        Phase::Assigned(assignment) => json!({
            "slot": assignment.holder.slot,
            "generation": assignment.holder.generation,
            "claimed_seconds_ago": assignment.claimed_at.elapsed().as_secs_f64(),
            "heartbeat_seconds_ago": assignment.heartbeat_at.elapsed().as_secs_f64(),
        }),
        _ => Value::Null,
    };
    let outcome = match &state.phase {
        Phase::Ended(outcome) => json!(outcome),
        _ => Value::Null,
    };
    let waiting: Vec<Value> = state
        .calls
        .iter()
        .map(|call| json!({"rid": call.rid, "seconds": call.started.elapsed().as_secs_f64()}))
        .collect();
    json!({
        "state": state.phase.label(),
        "job": session.spec.job,
        "rollout_id": session.spec.rollout_id,
        "age_seconds": session.created_at.elapsed().as_secs_f64(),
        "idle_seconds": state.last_activity.elapsed().as_secs_f64(),
        "turns": state.forest.len(),
        "record_bytes": state.forest.heap_bytes(),
        "engine": state.seat.as_ref().map(|seat| seat.engine().url().to_owned()),
        "in_flight": waiting,
        "holder": holder,
        "outcome": outcome,
        "aborting": state.abort.as_ref().map(|order| order.reason.clone()),
        "last_error": state.last_error,
    })
}

/// `DELETE /sessions/{id}`.
pub(crate) fn delete(inner: &Arc<Inner>, id: HexId) -> Result<Response<Body>, ApiError> {
    if let Some(session) = inner.sessions.remove(id, Instant::now())? {
        ending::delete(inner, &session);
    }
    Ok(no_content())
}

#[derive(Deserialize)]
struct OutcomeBody {
    outcome: Outcome,
    #[serde(default)]
    error: Option<String>,
}

/// `POST /sessions/{id}/outcome`: the word of somebody who knows better than the launcher.
pub(crate) fn outcome(
    inner: &Arc<Inner>,
    id: HexId,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let session = inner.sessions.get(id)?;
    let OutcomeBody { outcome, error } = read(body)?;
    let accepted = ending::end(inner, &session, ending::Report::plain(outcome, error));
    json(&json!({"accepted": accepted}))
}

/// Engine routes that change nothing.
pub(crate) async fn raw(
    inner: &Inner,
    id: HexId,
    path: &'static str,
    parts: &Parts,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let session = inner.sessions.get(id)?;
    inner.check_session_token(&id, &parts.headers)?;
    let seat = session
        .state
        .lock()
        .seat
        .as_ref()
        .map(|seat| Arc::clone(seat.engine()));
    let engine = seat
        .filter(|engine| engine.serves())
        .or_else(|| inner.engines.pick(&[]))
        .ok_or_else(|| ApiError::NoEngine(inner.engines.why_none()))?;
    let method = if body.is_empty() {
        Method::GET
    } else {
        Method::POST
    };
    let (status, body) = inner
        .upstream
        .control(&engine, method, PathAndQuery::from_static(path), body)
        .await?;
    let mut reply = Reply::json(body);
    reply.status = status;
    Ok(reply.into_response())
}

/// Metadata and the like as a JSON value; nothing when it is missing or null.
pub(crate) fn parsed(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or(Value::Null)
}
