//! The client's side of a turn: admission, joining, waiting, answering.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Response};
use tokio::sync::watch;
use tokio::time::Instant;

use super::call::{self, CallPlan};
use super::dialect::{Dialect, TurnRequest};
use super::stream::StreamOptions;
use super::{Progress, Reply};
use crate::body::Body;
use crate::edit::chat::Budget;
use crate::edit::sampling::Sampling;
use crate::error::ApiError;
use crate::headers::{IDEMPOTENCY_KEY, RETRY_COUNT};
use crate::id::HexId;
use crate::session::unix_seconds;
use crate::session::{Call, Evidence, Phase, RequestIdentity, Session, SessionState};
use crate::sse::{self, EventStream};
use crate::state::Inner;

/// Follows a turn.
pub(crate) type Waiter = watch::Receiver<Progress>;

/// Serves a turn.
pub(crate) async fn turn(
    inner: &Arc<Inner>,
    id: HexId,
    dialect: Dialect,
    parts: &Parts,
    body: Bytes,
) -> Result<Response<Body>, ApiError> {
    let session = inner.sessions.get(id)?;
    inner.check_session_token(&session.id, &parts.headers)?;
    let request = dialect.read(&body)?;
    let stream = request.stream();
    let identity = RequestIdentity::new(parts.headers.get(&IDEMPOTENCY_KEY), body.clone());
    let evidence = evidence(parts);
    let waiter = match earlier(&session, &identity, evidence, &request) {
        Earlier::Reply(reply) => return Ok(answer(reply, stream)),
        Earlier::Call(waiter) => waiter,
        Earlier::None => {
            let asked = (identity, evidence);
            start(inner, &session, dialect, parts, &request, asked)?
        }
    };
    match stream {
        None => Ok(wait(waiter).await.into_response()),
        Some(options) => Ok(stream_answer(inner, waiter, options).await),
    }
}

enum Earlier {
    Reply(Reply),
    Call(Waiter),
    None,
}

/// A request that says that it repeats another one gets that one's answer, if it is still to be had. Without such evidence equal
/// requests are different turns.
fn earlier(
    session: &Session,
    identity: &RequestIdentity,
    evidence: Evidence,
    request: &TurnRequest<'_>,
) -> Earlier {
    if evidence == Evidence::None {
        return Earlier::None;
    }
    let mut state = session.state.lock();
    let undelivered = state.undelivered.take();
    match undelivered {
        Some(undelivered) if undelivered.identity == *identity => {
            return Earlier::Reply(undelivered.reply);
        }
        other => state.undelivered = other,
    }
    let call = state.calls.iter().find(|call| call.identity == *identity);
    if let Some(call) = call {
        return Earlier::Call(call.progress.subscribe());
    }
    // It was sent, and was lost on the way: the client would not ask again if it had it.
    let answered = state.asked.answer_of(identity.digest);
    match answered.and_then(|turn| state.forest.turn(turn)) {
        Some(turn) if request.is_answered_by_record() => {
            Earlier::Reply(Reply::json(turn.response().to_vec()))
        }
        _ => Earlier::None,
    }
}

/// What a request says about being a repetition.
fn evidence(parts: &Parts) -> Evidence {
    let count = parts.headers.get(&RETRY_COUNT);
    let count = count.and_then(|count| count.to_str().ok()?.parse::<u32>().ok());
    if count.is_some_and(|count| count > 0) {
        Evidence::Retry
    } else if parts.headers.contains_key(&IDEMPOTENCY_KEY) {
        Evidence::Key
    } else {
        Evidence::None
    }
}

/// Starts a new turn in a task of its own.
fn start(
    inner: &Arc<Inner>,
    session: &Arc<Session>,
    dialect: Dialect,
    parts: &Parts,
    request: &TurnRequest<'_>,
    (identity, evidence): (RequestIdentity, Evidence),
) -> Result<Waiter, ApiError> {
    let (epoch, budget) = prepare(inner, session, request)?;
    let rid = HexId::random();
    let sampling = session.spec.sampling.as_ref();
    let no_policy = Sampling::default();
    let bodies = request.rewrite(rid, sampling.unwrap_or(&no_policy), budget)?;
    let ticket = inner.flights.admit(session.scope())?;
    let (sender, waiter) = watch::channel(Progress::default());
    {
        let mut state = session.state.lock();
        // The session may have ended since it was looked at; then nobody would cancel this request.
        if state.forest.epoch() != epoch {
            return Err(ended(&state, session.id));
        }
        state.asked.asked(identity.digest, evidence);
        state.calls.push(Call {
            rid,
            identity: identity.clone(),
            started: Instant::now(),
            progress: sender.clone(),
        });
    }
    let plan = CallPlan {
        dialect,
        epoch,
        rid,
        bodies,
        stream: request.stream(),
        messages: request.messages(),
        input_ids: request.input_ids(),
        client_headers: crate::headers::to_engine(&parts.headers),
        requested_at: unix_seconds(),
        ticket,
        identity,
        progress: sender,
    };
    inner
        .tasks
        .spawn(call::run(Arc::clone(inner), Arc::clone(session), plan));
    Ok(waiter)
}

/// Checks that the session takes a turn now. Answers its epoch and its budget.
fn prepare(
    inner: &Inner,
    session: &Session,
    request: &TurnRequest<'_>,
) -> Result<(u64, Option<Budget>), ApiError> {
    inner.flights.check(&session.scope())?;
    let limits = inner.sessions.limits();
    let mut state = session.state.lock();
    if matches!(state.phase, Phase::Ended(_)) {
        return Err(ended(&state, session.id));
    }
    let turns = state.forest.len() + state.calls.len();
    if turns >= limits.turns {
        let text = format!("the session has {turns} turns, the limit");
        return Err(ApiError::TooMany(text));
    }
    let bytes = state.forest.heap_bytes();
    if bytes >= limits.session_bytes {
        let text = format!(
            "the session's records have {bytes} bytes, the limit is {}",
            limits.session_bytes
        );
        return Err(ApiError::TooLarge(text));
    }
    let total = inner.sessions.bytes();
    if total >= limits.total_bytes {
        let text = format!(
            "the records of all sessions have {total} bytes, the limit is {}",
            limits.total_bytes
        );
        return Err(ApiError::TooMany(text));
    }
    state.last_activity = Instant::now();
    // Once in the router's life: every session of a job has the same agent, and a job has thousands.
    if request.has_logprob_start() && !inner.warned_logprob_start.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            session = session.id.short(),
            "logprob_start_len was removed from an agent's request: it makes the engine compute log-probabilities of the whole prompt and defeats its prefix cache; it is always removed, and this is said once"
        );
    }
    let budget = session.spec.max_seq_len.map(|limit| Budget {
        limit,
        used: state.forest.known_prompt_tokens(request.messages()),
    });
    Ok((state.forest.epoch(), budget))
}

/// Why a session takes no turn any more.
pub(super) fn ended(state: &SessionState, id: HexId) -> ApiError {
    match &state.phase {
        Phase::Ended(outcome) => ApiError::SessionEnded {
            outcome: outcome.label(),
        },
        _ => ApiError::SessionNotFound(id.as_str().to_owned()),
    }
}

async fn wait(mut waiter: Waiter) -> Reply {
    let progress = waiter.wait_for(|progress| progress.reply.is_some()).await;
    match progress {
        Ok(progress) => progress.reply.clone().unwrap_or_else(lost),
        Err(_) => lost(),
    }
}

/// The answer of a turn whose task is gone.
pub(crate) fn lost() -> Reply {
    Reply::from(&ApiError::Internal(
        "the turn was lost, nothing was recorded".to_owned(),
    ))
}

fn answer(reply: Reply, stream: Option<StreamOptions>) -> Response<Body> {
    match stream {
        Some(options) if reply.status.is_success() => {
            let body = sse::of_reply(&reply.body, options.include_usage);
            event_response(Body::full(body))
        }
        _ => reply.into_response(),
    }
}

/// Waits a moment for the first delta or the answer, so that an early error keeps its status; then keeps the stream alive.
async fn stream_answer(inner: &Inner, waiter: Waiter, options: StreamOptions) -> Response<Body> {
    let period = inner.config.times.keep_alive;
    let mut first = waiter.clone();
    let early = tokio::time::timeout(period, async {
        let begun = |progress: &Progress| !progress.events.is_empty() || progress.reply.is_some();
        match first.wait_for(begun).await {
            Ok(progress) if progress.events.is_empty() => progress.reply.clone(),
            Ok(_) => None,
            Err(_) => Some(lost()),
        }
    })
    .await;
    let is_late = early.is_err();
    if let Ok(Some(reply)) = early {
        return answer(reply, Some(options));
    }
    let usage = options.include_usage;
    event_response(Body::events(EventStream::new(
        waiter, period, usage, is_late,
    )))
}

fn event_response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert("cache-control", HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
