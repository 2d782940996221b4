//! One request to an engine and its whole answer.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::Reply;
use super::call::CallPlan;
use super::dialect::Bodies;
use super::stream::{self, Ended, Streamed};
use crate::engines::{Engine, Line, ModelInfo, Outstanding, Seat, SendError, read_reply};
use crate::error::ApiError;
use crate::headers;
use crate::session::Session;
use crate::state::Inner;

/// A request that was sent, with the head of its answer.
pub(super) struct Sent {
    line: Line,
    response: Response<Incoming>,
    /// What the engine said of itself before, when it was asked for a stream.
    info: Option<ModelInfo>,
    at: Instant,
    request: Bytes,
}

/// Asks an engine whether its stream can be recorded. Answers what it says of itself if so.
async fn can_stream(inner: &Inner, plan: &CallPlan, engine: &Engine) -> Option<ModelInfo> {
    if plan.bodies.streamed.is_none() || !engine.is_trusted_to_stream() {
        return None;
    }
    let info = inner.upstream.model_info(engine).await?;
    info.streams_all_tokens().then_some(info)
}

/// Sends the request to the session's engine; to another one only if nothing reached the first.
pub(super) async fn send(
    inner: &Arc<Inner>,
    session: &Session,
    plan: &mut CallPlan,
    headers: HeaderMap,
) -> Result<Sent, ApiError> {
    let rids: Arc<[String]> = Arc::from([plan.rid.as_str().to_owned()]);
    let mut tried: Vec<Arc<Engine>> = Vec::new();
    let mut last = None;
    loop {
        let Some(place) = choose(inner, session, &tried) else {
            let reason = last.unwrap_or_else(|| inner.engines.why_none());
            return Err(ApiError::NoEngine(reason));
        };
        let engine = Arc::clone(place.engine());
        let line = Line::to(&engine);
        let info = can_stream(inner, plan, &engine).await;
        let Bodies { whole, streamed } = &plan.bodies;
        let request = match (&info, streamed) {
            (Some(_), Some(streamed)) => streamed.clone(),
            _ => whole.clone(),
        };
        plan.ticket.dispatch(place, &rids)?;
        let at = Instant::now();
        let (path, headers) = (plan.dialect.path(), headers.clone());
        let answer = inner
            .upstream
            .generate(&engine, path, headers, request.clone());
        match line.unless_silent(answer).await? {
            Ok(response) => {
                return Ok(Sent {
                    line,
                    response,
                    info,
                    at,
                    request,
                });
            }
            Err(SendError::NotSent(reason)) => {
                plan.ticket.recall();
                engine.note_failure();
                last = Some(format!("{engine}: {reason}"));
                tried.push(engine);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A place at the session's engine, while it is there; else at the least loaded one, which becomes the session's.
fn choose(inner: &Inner, session: &Session, tried: &[Arc<Engine>]) -> Option<Outstanding> {
    let mut state = session.state.lock();
    if let Some(seat) = &state.seat {
        let engine = seat.engine();
        let gone = tried.iter().any(|other| Arc::ptr_eq(other, engine));
        let place = Some(engine).filter(|engine| engine.is_healthy() && !gone);
        if let Some(place) = place.and_then(Outstanding::at) {
            return Some(place);
        }
    }
    let place = inner.engines.place(tried)?;
    state.seat = Some(Seat::at(place.engine()));
    Some(place)
}

/// What the engine answered.
pub(super) struct Answered {
    pub(super) line: Line,
    pub(super) reply: Reply,
    /// The stream that the reply was put together from.
    pub(super) streamed: Option<Streamed>,
    /// The body that the engine got.
    pub(super) request: Bytes,
}

/// Reads the engine's answer to its end.
pub(super) async fn read(
    inner: &Inner,
    plan: &mut CallPlan,
    sent: Sent,
) -> Result<Answered, ApiError> {
    let Sent {
        line,
        response,
        info,
        at,
        request,
    } = sent;
    let (head, body) = response.into_parts();
    let limit = inner.config.limits.reply_bytes;
    let is_stream = head.status == StatusCode::OK && is_event_stream(&head.headers);
    let mut reply = Reply {
        status: head.status,
        headers: headers::to_client(head.headers),
        body: Bytes::new(),
    };
    let mut streamed = None;
    match (info, plan.stream) {
        (Some(info), Some(options)) if is_stream => {
            let ended = stream::read(&line, body, limit, options, &plan.progress).await?;
            match ended {
                Ended::Failed(error) => reply = error,
                Ended::Well(stream) => {
                    reply.headers.insert(CONTENT_TYPE, headers::JSON);
                    reply.body = stream.reply(info.weight_version.as_deref(), at.elapsed());
                    streamed = Some(*stream);
                }
            }
        }
        _ => {
            let idle = inner.config.times.idle_body;
            reply.body = read_reply(&line, body, limit, idle).await?;
        }
    }
    plan.ticket.prove();
    Ok(Answered {
        line,
        reply,
        streamed,
        request,
    })
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// A stream that nobody can record is not asked for again.
pub(super) fn distrust_streams(engine: &Engine, error: &rollout_session::ReplyError) {
    engine.distrust_streams();
    tracing::warn!(
        engine = engine.url(),
        %error,
        "a streamed turn could not be recorded: this engine's answers are asked for in one piece from now on"
    );
}
