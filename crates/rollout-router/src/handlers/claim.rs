//! `POST /agent/claim`: a launcher asks for a session.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{json, no_content, read, session::parsed};
use crate::auth::Holder;
use crate::body::Body;
use crate::error::ApiError;
use crate::flights::Scope;
use crate::headers;
use crate::id::HexId;
use crate::jobs::Job;
use crate::session::{Assignment, Phase, Session};
use crate::state::Inner;

/// Longest wait of one claim.
const LONGEST_WAIT: f64 = 30.0;

#[derive(Deserialize)]
struct ClaimBody {
    claim_id: String,
    #[serde(default)]
    wait_seconds: f64,
    /// The launcher's agent has been loaded.
    #[serde(default)]
    loaded: bool,
}

pub(crate) async fn claim(
    inner: &Arc<Inner>,
    parts: &Parts,
    body: &[u8],
) -> Result<Response<Body>, ApiError> {
    let holder = holder(inner, parts)?;
    let job = inner.jobs.of(&holder.job);
    job.check_generation(&holder)?;
    let ClaimBody {
        claim_id,
        wait_seconds,
        loaded,
    } = read(body)?;
    if HexId::parse(&claim_id).is_none() {
        return Err(ApiError::BadRequest(
            "claim_id must be 32 hexadecimal digits, fresh for each claim".to_owned(),
        ));
    }
    if loaded {
        job.note_loaded_agent();
    }
    if let Some(session) = repeated(inner, &job, &claim_id) {
        return json(&assignment(inner, &session));
    }
    let wait = Duration::from_secs_f64(wait_seconds.clamp(0.0, LONGEST_WAIT));
    let taken = tokio::time::timeout(wait, wait_for_session(inner, &job, &holder, &claim_id)).await;
    match taken {
        Ok(session) => json(&assignment(inner, &*session?)),
        Err(_) => Ok(no_content()),
    }
}

/// Who calls, by its claim token.
pub(crate) fn holder(inner: &Inner, parts: &Parts) -> Result<Holder, ApiError> {
    let secret = inner.config.claim_secret.as_deref();
    Holder::of_token(secret, headers::bearer(&parts.headers))
}

/// The session that an earlier try of this claim got.
fn repeated(inner: &Inner, job: &Job, claim_id: &str) -> Option<Arc<Session>> {
    inner.sessions.get(job.claimed_before(claim_id)?).ok()
}

async fn wait_for_session(
    inner: &Inner,
    job: &Arc<Job>,
    holder: &Holder,
    claim_id: &str,
) -> Result<Arc<Session>, ApiError> {
    let _waiting = job.waiting();
    let scope = Scope {
        job: Some(Arc::from(holder.job.as_str())),
        ..Scope::default()
    };
    loop {
        let work = job.work.notified();
        tokio::pin!(work);
        work.as_mut().enable();
        inner.flights.check(&scope)?;
        match take(inner, job, holder, claim_id) {
            Ok(Some(session)) => return Ok(session),
            Ok(None) => {}
            Err(error) => {
                // The session that it was woken for is for another one.
                job.work.notify_one();
                return Err(error);
            }
        }
        work.await;
    }
}

/// Takes the first session of the queue that is not fenced. The pod may have been replaced while it waited.
fn take(
    inner: &Inner,
    job: &Job,
    holder: &Holder,
    claim_id: &str,
) -> Result<Option<Arc<Session>>, ApiError> {
    let mut queue = job.queue.lock();
    job.check_generation(holder)?;
    let mut position = 0;
    while let Some(id) = queue.get(position).copied() {
        let Ok(session) = inner.sessions.get(id) else {
            queue.remove(position);
            continue;
        };
        if inner.flights.check(&session.scope()).is_err() {
            position += 1;
            continue;
        }
        queue.remove(position);
        let mut state = session.state.lock();
        if state.phase != Phase::Queued {
            continue;
        }
        let now = Instant::now();
        state.phase = Phase::Assigned(Assignment {
            holder: holder.clone(),
            claimed_at: now,
            heartbeat_at: now,
        });
        state.last_activity = now;
        state.claim_id = Some(claim_id.to_owned());
        drop(state);
        job.remember_claim(claim_id, session.id);
        tracing::debug!(session = session.id.short(), ?holder, "assigned");
        return Ok(Some(session));
    }
    Ok(None)
}

fn assignment(inner: &Inner, session: &Session) -> Value {
    let spec = &session.spec;
    let mut metadata = match parsed(spec.metadata.as_deref()) {
        Value::Object(metadata) => metadata,
        _ => serde_json::Map::new(),
    };
    let server = inner.advertised_url();
    let server = server.split_once("://").map_or(server, |(_, host)| host);
    if let Some(max_seq_len) = spec.max_seq_len {
        metadata.insert("max_seq_len".to_owned(), json!(max_seq_len));
    }
    metadata.insert("session_server_id".to_owned(), json!(server));
    metadata.insert(
        "session_server_instance_id".to_owned(),
        json!(inner.instance),
    );
    let request_kwargs = match parsed(spec.request_kwargs.as_deref()) {
        Value::Null => json!({}),
        kwargs => kwargs,
    };
    json!({
        "session_id": session.id,
        "base_url": inner.base_url(&session.id),
        "token": inner.session_token(&session.id),
        "prompt": parsed(spec.prompt.as_deref()),
        "request_kwargs": request_kwargs,
        "metadata": metadata,
        "max_seq_len": spec.max_seq_len,
        "deadline_seconds": spec.deadline_seconds,
        "heartbeat_seconds": inner.config.times.heartbeat.as_secs_f64(),
        "resume": spec.resume,
        "alone": spec.alone,
    })
}
