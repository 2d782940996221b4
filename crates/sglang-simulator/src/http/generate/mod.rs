//! `/generate`.

mod answer;
mod batch;
mod contract;
mod features;
mod ids;
mod logprobs;
mod prepared;
mod request;
mod schema;
mod stream;

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;

use super::body::Place;
use super::reply::{self, ApiError};
use super::{App, body};
use crate::engine::{Done, Submission, SubmitError, Ticket};
use crate::wire::python;

use answer::answer_of;
pub(super) use answer::{Answer, AnswerOptions, Meta};
pub(super) use features::{
    check_session, first_text, no_hidden_states, no_logit_processor, no_lora, no_sampling_mask,
};
pub(super) use prepared::{Prepared, Question, new_rid, outputs_of};
pub(super) use stream::Chunks;

const PLACE: Place = Place {
    path: "/generate",
    function: "generate_request",
    line: 928,
};

/// Answers `/generate`.
pub(super) async fn handle(app: Arc<App>, request: Request) -> Response {
    let bytes = match body::read(request).await {
        Ok(bytes) => bytes,
        Err(error) => return error.into_response(),
    };
    let parsed = match request::parse(&bytes) {
        Ok(parsed) => parsed,
        Err(error) => return error.into_response(),
    };
    drop(bytes);
    let is_stream = parsed.is_stream();
    let prepared = match parsed.prepare(&app) {
        Ok(prepared) => prepared,
        Err(error) => return refused(error, is_stream),
    };
    let (is_batch, prepared) = (prepared.is_batch, prepared.outputs);
    if let Err(error) = warm_up(&app, &prepared).await {
        return refused(error, is_stream);
    }
    let (tickets, options) = match submit(&app, prepared, is_stream) {
        Ok(submitted) => submitted,
        Err(error) => return refused(error, is_stream),
    };
    if is_stream {
        return stream::response(&app, tickets, options, is_batch);
    }
    match collect(&app, tickets, &options).await {
        Ok(answers) if is_batch => reply::ok(&answers),
        Ok(answers) => answers
            .first()
            .map_or_else(reply::internal_server_error, reply::ok),
        Err(error) => error.into_response(),
    }
}

/// A stream tells its errors inside.
fn refused(error: ApiError, is_stream: bool) -> Response {
    match error {
        ApiError::Native(_) | ApiError::Engine(..) if is_stream => stream::error(error),
        ApiError::Uncaught(_) if is_stream => stream::broken(),
        error => error.into_response(),
    }
}

/// With several samples, SGLang first computes the prompt once, so that all samples find it in the cache.
pub(super) async fn warm_up(app: &Arc<App>, prepared: &[Prepared]) -> Result<(), ApiError> {
    let prefixes: Vec<Submission> = prepared.iter().filter_map(Prepared::prefix_only).collect();
    if prefixes.is_empty() {
        return Ok(());
    }
    for ticket in app.engine.submit(prefixes).map_err(duplicate)? {
        wait(ticket).await?;
    }
    Ok(())
}

/// Hands prepared requests to the engine.
pub(super) fn submit(
    app: &Arc<App>,
    prepared: Vec<Prepared>,
    streaming: bool,
) -> Result<(Vec<Ticket>, Vec<AnswerOptions>), ApiError> {
    let (submissions, options) = prepared.into_iter().map(|one| one.split(streaming)).unzip();
    let tickets = app.engine.submit(submissions).map_err(duplicate)?;
    Ok((tickets, options))
}

fn duplicate(error: SubmitError) -> ApiError {
    ApiError::Native(match error {
        SubmitError::DuplicateRid(rid) => format!("Duplicate request ID detected: {rid}"),
        SubmitError::RepeatedRids(rids) => {
            let rids: Vec<_> = rids.iter().map(|rid| python::repr_str(rid)).collect();
            format!(
                "Duplicate request IDs detected within the request: [{}]",
                rids.join(", ")
            )
        }
    })
}

/// Waits for all answers, in order.
pub(super) async fn collect(
    app: &App,
    tickets: Vec<Ticket>,
    options: &[AnswerOptions],
) -> Result<Vec<Answer>, ApiError> {
    let mut answers = Vec::with_capacity(tickets.len());
    for (ticket, options) in tickets.into_iter().zip(options) {
        let finished = wait(ticket).await?;
        answers.push(answer_of(app, options, &finished, None));
    }
    Ok(answers)
}

async fn wait(ticket: Ticket) -> Result<Box<crate::engine::Finished>, ApiError> {
    match ticket.done().await {
        Some(Done::Finished(finished)) => Ok(finished),
        Some(Done::QueueFull) => Err(queue_full()),
        None => Err(ApiError::Dead),
    }
}

pub(super) fn queue_full() -> ApiError {
    ApiError::Engine(503, "The request queue is full.".into())
}
