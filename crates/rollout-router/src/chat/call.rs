//! The engine's side of a turn, in a task that outlives its clients until the engine has said its last word.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use rollout_session::{FinishReason, TurnContext};
use tokio::sync::watch;
use tokio::time::Instant;

use super::dialect::{Bodies, Checked, Dialect};
use super::exchange::{Answered, distrust_streams, read, send};
use super::stream::{StreamOptions, Streamed};
use super::turn::ended;
use super::{Progress, Reply};
use crate::ending::{self, Report};
use crate::error::ApiError;
use crate::flights::Ticket;
use crate::headers::{self, ROUTING_KEY};
use crate::id::HexId;
use crate::session::unix_seconds;
use crate::session::{EngineFault, Outcome, RequestIdentity, Session, Undelivered};
use crate::state::Inner;

/// Everything that a call needs.
pub(super) struct CallPlan {
    pub(super) dialect: Dialect,
    pub(super) epoch: u64,
    pub(super) rid: HexId,
    pub(super) bodies: Bodies,
    /// How the client wants its answer, if it wants a stream.
    pub(super) stream: Option<StreamOptions>,
    pub(super) messages: Option<usize>,
    pub(super) input_ids: Option<Vec<u32>>,
    pub(super) client_headers: HeaderMap,
    pub(super) requested_at: f64,
    pub(super) ticket: Ticket,
    pub(super) identity: RequestIdentity,
    pub(super) progress: watch::Sender<Progress>,
}

/// Takes a call off its session's list, whatever happens to its task.
struct Listed {
    session: Arc<Session>,
    rid: HexId,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        state.calls.retain(|call| call.rid != self.rid);
    }
}

impl Listed {
    /// Takes the call off the list if nobody waits for it, so that nobody can join it any more.
    fn unlist_if_abandoned(&self, clients: &watch::Sender<Progress>) -> bool {
        let mut state = self.session.state.lock();
        let abandoned = clients.receiver_count() == 0;
        if abandoned {
            state.calls.retain(|call| call.rid != self.rid);
        }
        abandoned
    }
}

/// Runs a call to its end.
pub(super) async fn run(inner: Arc<Inner>, session: Arc<Session>, plan: CallPlan) {
    let listed = Listed {
        session: Arc::clone(&session),
        rid: plan.rid,
    };
    let started = Instant::now();
    let clients = plan.progress.clone();
    let flight = plan.ticket.number();
    let over = session_over(&session, plan.epoch);
    let closing = inner.last_call.closing();
    let work = work(&inner, &session, plan);
    tokio::pin!(work, over, closing);
    let reply = loop {
        tokio::select! {
            biased;
            reply = &mut work => break reply,
            error = &mut over => {
                // Nothing of it is recorded any more: its client need not wait for the engine.
                let reply = Reply::from(&error);
                inner.metrics.turn(started.elapsed(), reply.status);
                tell(&clients, reply);
                let _ = tokio::time::timeout(inner.config.times.orphan, work).await;
                return;
            }
            () = &mut closing => break Reply::from(&ApiError::router_stops()),
            () = clients.closed() => {}
        }
        if !listed.unlist_if_abandoned(&clients) {
            continue;
        }
        inner.metrics.client_gone();
        let sent = inner.flights.cancel(flight, "the client went away");
        inner
            .aborter
            .abort_in_background(sent.into_iter().collect());
        // The last word of the engine; without it, dropping the work closes the connection.
        match tokio::time::timeout(inner.config.times.orphan, work).await {
            Ok(reply) => break reply,
            Err(_) => return,
        }
    };
    inner.metrics.turn(started.elapsed(), reply.status);
    tell(&clients, reply);
}

fn tell(clients: &watch::Sender<Progress>, reply: Reply) {
    clients.send_modify(|progress| progress.reply = Some(reply));
}

/// Waits until the session takes no turn of this epoch any more. Answers why.
async fn session_over(session: &Session, epoch: u64) -> ApiError {
    loop {
        let changed = session.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        {
            let state = session.state.lock();
            if state.forest.epoch() != epoch {
                return match ended(&state, session.id) {
                    ApiError::SessionNotFound(_) => {
                        ApiError::RolloutClosed("the session was deleted".to_owned())
                    }
                    error => error,
                };
            }
        }
        changed.await;
    }
}

async fn work(inner: &Arc<Inner>, session: &Arc<Session>, mut plan: CallPlan) -> Reply {
    let result = generate(inner, session, &mut plan).await;
    let ticket = plan.ticket;
    let cancelled = ticket.cancelled();
    let (reply, fault) = match result {
        Ok(reply) => {
            let fault = EngineFault::of_reply(reply.status, &reply.body);
            (reply, fault.filter(|_| cancelled.is_none()))
        }
        Err(error) => {
            // Whatever became of a request that was ended from outside: its client must not send it again.
            let error = cancelled.unwrap_or(error);
            session.state.lock().last_error = Some(error.to_string());
            inner.metrics.refused(error.code());
            (Reply::from(&error), EngineFault::of_error(&error))
        }
    };
    if ticket.is_proven() {
        drop(ticket);
    } else {
        inner.aborter.orphaned(ticket);
    }
    if let Some(fault) = fault {
        failed(inner, session, fault);
    }
    reply
}

/// An engine failed a turn. A session that engines fail again and again says nothing about its agent.
fn failed(inner: &Arc<Inner>, session: &Session, fault: EngineFault) {
    let last = fault.message.clone();
    let in_a_row = session.state.lock().engine_faults.note(fault);
    if in_a_row < inner.config.limits.engine_faults {
        return;
    }
    let error = format!("the engines failed {in_a_row} turns in a row: {last}");
    tracing::warn!(session = session.id.short(), "{error}");
    let report = Report::plain(Outcome::InfraFailed, Some(error));
    ending::end(inner, session, report);
}

async fn generate(
    inner: &Arc<Inner>,
    session: &Arc<Session>,
    plan: &mut CallPlan,
) -> Result<Reply, ApiError> {
    let mut headers = std::mem::take(&mut plan.client_headers);
    headers.insert(http::header::CONTENT_TYPE, headers::JSON);
    if let Ok(key) = HeaderValue::from_str(session.id.as_str()) {
        headers.insert(ROUTING_KEY, key);
    }
    let sent = send(inner, session, plan, headers).await?;
    let Answered {
        line,
        mut reply,
        streamed,
        request,
    } = read(inner, plan, sent).await?;
    if reply.status != StatusCode::OK {
        if EngineFault::of_reply(reply.status, &reply.body).is_none() {
            session.state.lock().engine_faults.clear();
        }
        return Ok(reply);
    }
    let answered_at = unix_seconds();
    let body = reply.body.clone();
    let known = session.state.lock().forest.known_prompt();
    let checked = plan
        .dialect
        .check(&body, plan.input_ids.as_deref(), known)
        .map_err(|error| {
            if streamed.is_some() {
                distrust_streams(line.engine(), &error);
            }
            ApiError::BadReply(error.to_string())
        })?;
    if let Some(version) = &checked.generation.weight_version {
        line.engine().note_weight_version(version);
    }
    let Checked {
        generation,
        client_body,
        record_body,
        prompt_text,
    } = checked;
    if let Some(body) = client_body {
        reply.body = Bytes::from(body);
    }
    let abandoned = plan.progress.receiver_count() == 0;
    if abandoned && generation.finish == Some(FinishReason::Abort) {
        return Err(ApiError::RolloutClosed(
            "the client went away, the turn was aborted and not recorded".to_owned(),
        ));
    }
    inner.metrics.tokens(&generation);
    let context = TurnContext {
        messages: plan.messages,
        request: &request,
        response: record_body,
        prompt_text,
        requested_at: plan.requested_at,
        answered_at,
        ..TurnContext::default()
    };
    let mut state = session.state.lock();
    let Ok(turn) = state.forest.commit(plan.epoch, generation, context) else {
        return Err(ended(&state, session.id));
    };
    state.asked.answered(plan.identity.digest, turn);
    state.settle_bytes(&inner.sessions);
    state.last_activity = Instant::now();
    state.last_error = None;
    state.engine_faults.clear();
    state.undelivered = None;
    if abandoned {
        state.undelivered = Some(Undelivered {
            identity: plan.identity.clone(),
            reply: reply.clone(),
        });
    }
    drop(state);
    // Only now: the end of a stream says that its turn is recorded. Nothing is awaited between the two.
    if let Some(Streamed { end, .. }) = streamed {
        plan.progress
            .send_modify(|progress| progress.events.extend(end));
    }
    Ok(reply)
}
