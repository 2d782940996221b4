//! `/v1/chat/completions`.

mod answer;
mod messages;
mod prompt;
mod request;
mod stream;
mod validate;

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;

use super::App;
use super::body::Place;
use super::generate;
use super::openai::as_openai;
use super::reply::{self, ApiError};

pub(super) use prompt::render;

const PLACE: Place = Place {
    path: "/v1/chat/completions",
    function: "openai_v1_chat_completions",
    line: 1870,
};

/// Answers `/v1/chat/completions`.
pub(super) async fn handle(app: Arc<App>, request: Request) -> Response {
    let answer = answer(app, request).await;
    answer.unwrap_or_else(|error| as_openai(error).into_response())
}

async fn answer(app: Arc<App>, request: Request) -> Result<Response, ApiError> {
    let fields = PLACE.json_object(request).await?;
    validate::check(&PLACE, &fields)?;
    let chat = request::ChatRequest::new(fields)?;
    let prepared = chat.prepare(&app)?;
    generate::warm_up(&app, &prepared).await?;
    let (tickets, options) = generate::submit(&app, prepared, chat.stream)?;
    if chat.stream {
        return Ok(stream::response(&app, chat, tickets, options));
    }
    // the prompt ids are wanted here and not in the answers of `/generate`
    let prompt = tickets
        .first()
        .map(|ticket| ticket.job().prompt.clone())
        .unwrap_or_default();
    let answers = generate::collect(&app, tickets, &options).await?;
    Ok(reply::ok(&answer::completion(
        &app, &chat, &prompt, answers,
    )))
}
