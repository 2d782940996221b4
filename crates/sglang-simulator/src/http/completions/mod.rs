//! `/v1/completions`.

mod answer;
mod request;
mod validate;

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;

use super::App;
use super::body::Place;
use super::generate;
use super::openai::{Fields, as_openai};
use super::reply::{self, ApiError};
use request::CompletionRequest;

const PLACE: Place = Place {
    path: "/v1/completions",
    function: "openai_v1_completions",
    line: 1860,
};

/// Answers `/v1/completions`.
pub(super) async fn handle(app: Arc<App>, request: Request) -> Response {
    let answer = answer(app, request).await;
    answer.unwrap_or_else(|error| as_openai(error).into_response())
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let fields = PLACE.json_object(request).await?;
    validate::check(&fields)?;
    let wanted = CompletionRequest(Fields(fields));
    let prepared = wanted.prepare(&app)?;
    generate::warm_up(&app, &prepared).await?;
    let stream_wanted = wanted.0.flag("stream");
    let (tickets, options) = generate::submit(&app, prepared, stream_wanted)?;
    if stream_wanted {
        return Ok(answer::stream(&app, &wanted, tickets, options));
    }
    let prompts: Vec<_> = tickets
        .iter()
        .map(|ticket| ticket.job().prompt.clone())
        .collect();
    let answers = generate::collect(&app, tickets, &options).await?;
    Ok(reply::ok(&answer::completion(
        &app, &wanted, &prompts, &answers,
    )))
}
