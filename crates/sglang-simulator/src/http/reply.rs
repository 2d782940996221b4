//! Answers and errors. SGLang has five error shapes; which one a client gets depends on the route and on who found the error.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

use super::Dropped;
use crate::wire::sampling_checks::Refused;

/// What can go wrong with a request.
#[derive(Debug, Clone)]
pub(crate) enum ApiError {
    /// A native route refuses the value of something: `{"error": {"message"}}`.
    Native(String),
    /// The schema of `/generate` does not fit: `{"error": "text"}`.
    Schema(String),
    /// The body of any route does not validate.
    Validation(String),
    /// An OpenAI route refuses something; the second field is `type`.
    OpenAi(String, &'static str),
    /// The engine ended the request with a status.
    Engine(u16, String),
    /// A native route fails at the request.
    Uncaught(String),
    /// An OpenAI route fails at the request.
    OpenAiUncaught(String),
    /// The server fails before a route sees the body.
    Crashed,
    /// The process died.
    Dead,
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Value(message) => Self::Native(message),
            Refused::Uncaught(message) => Self::Uncaught(message),
        }
    }
}

impl ApiError {
    /// The answer.
    pub(crate) fn into_response(self) -> Response {
        let bad = StatusCode::BAD_REQUEST;
        match self {
            Self::Native(message) => json_of(bad, &json!({"error": {"message": message}})),
            Self::Schema(message) => json_of(bad, &json!({"error": message})),
            Self::Validation(message) => json_of(bad, &object(&message, "Bad Request", 400)),
            Self::OpenAi(message, kind) => json_of(bad, &object(&message, kind, 400)),
            Self::Engine(status, message) => engine_status(status, &message),
            Self::Uncaught(_) | Self::Crashed => internal_server_error(),
            Self::OpenAiUncaught(message) => {
                let message = format!("Internal server error: {message}");
                let body = object(&message, "InternalServerError", 500);
                json_of(StatusCode::INTERNAL_SERVER_ERROR, &body)
            }
            Self::Dead => dropped("dead"),
        }
    }

    /// The event of a stream whose headers are out already.
    pub(crate) fn into_event(self) -> Value {
        let (message, code) = match self {
            Self::Native(message)
            | Self::Schema(message)
            | Self::Validation(message)
            | Self::OpenAi(message, _) => (message, 400),
            Self::Engine(status, message) => (message, status),
            Self::Uncaught(message) | Self::OpenAiUncaught(message) => (message, 500),
            Self::Crashed | Self::Dead => ("the engine is gone".into(), 500),
        };
        let kind = if code == 400 {
            "invalid_request_error"
        } else {
            "server_error"
        };
        json!({"error": {"message": message, "type": kind, "code": code, "retryable": code == 503}})
    }
}

fn object(message: &str, kind: &str, code: u16) -> Value {
    json!({"object": "error", "message": message, "type": kind, "param": null, "code": code})
}

/// An error with a status of the engine's own.
pub(super) fn engine_status(status: u16, message: &str) -> Response {
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_of(code, &object(message, &status.to_string(), status))
}

/// A JSON body, compact as SGLang's.
pub(super) fn json_of(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => with_type(status, "application/json", Bytes::from(bytes)),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written");
            internal_server_error()
        }
    }
}

pub(super) fn ok(body: &impl Serialize) -> Response {
    json_of(StatusCode::OK, body)
}

/// A body of bytes with a content type.
pub(super) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// No body, no type.
pub(super) fn bare(status: StatusCode) -> Response {
    text(status, "")
}

/// Text without a type.
pub(super) fn text(status: StatusCode, body: &'static str) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
}

/// A stream of events.
pub(super) fn event_stream(body: Body) -> Response {
    with_type(StatusCode::OK, "text/event-stream; charset=utf-8", body)
}

pub(super) fn is_event_stream(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"))
}

/// One event.
pub(super) fn event(data: &impl Serialize) -> Bytes {
    let mut bytes = b"data: ".to_vec();
    if let Err(error) = serde_json::to_writer(&mut bytes, data) {
        tracing::error!(%error, "an event cannot be written");
    }
    bytes.extend_from_slice(b"\n\n");
    bytes.into()
}

/// The last event of every stream.
pub(super) fn done_event() -> Bytes {
    Bytes::from_static(b"data: [DONE]\n\n")
}

pub(super) fn not_found() -> Response {
    json_of(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"}))
}

pub(super) fn method_not_allowed(methods: &'static str) -> Response {
    let mut response = json_of(
        StatusCode::METHOD_NOT_ALLOWED,
        &json!({"detail": "Method Not Allowed"}),
    );
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(methods));
    response
}

pub(super) fn internal_server_error() -> Response {
    with_type(
        StatusCode::INTERNAL_SERVER_ERROR,
        "text/plain; charset=utf-8",
        "Internal Server Error",
    )
}

/// An answer that is never sent. Without a socket it shows as a 500 with the reason in a header.
pub(super) fn dropped(reason: &'static str) -> Response {
    let mut response = bare(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        HeaderName::from_static("x-simulator-fault"),
        HeaderValue::from_static(reason),
    );
    response.extensions_mut().insert(Dropped);
    response
}
