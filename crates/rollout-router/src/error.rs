//! What a client is told when something is refused or fails. Every variant says whose fault it is.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use crate::jobs::Stale;

/// Tells OpenAI's clients whether to send a request again.
pub(crate) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An answer that is an error.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The request is wrong.
    #[error("{0}")]
    BadRequest(String),
    /// The prompt leaves no room for an answer; the text is the usual one of engines.
    #[error(
        "This session's maximum context length is {limit} tokens. The conversation already has at least {used}: the input is longer than the model's context length."
    )]
    ContextLength {
        /// Budget of the session.
        limit: usize,
        /// Tokens that the prompt has at least.
        used: usize,
    },
    /// The credential is missing or wrong.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// The route exists, but not for this caller.
    #[error("{0}")]
    Forbidden(String),
    /// No such session. The whole id is of Miles's wire, for the caller who has it.
    #[error("session not found: session_id={0}")]
    SessionNotFound(String),
    /// No such route, or another thing that is not there.
    #[error("{0}")]
    NotFound(String),
    /// The route has other methods.
    #[error("Method Not Allowed")]
    MethodNotAllowed,
    /// The body did not come in time.
    #[error("the request body did not arrive in time")]
    RequestTimeout,
    /// Another pod has taken this one's place.
    #[error("generation {generation} of slot {slot} is stale: {why}")]
    StaleGeneration {
        /// Slot of the pod.
        slot: String,
        /// Its generation.
        generation: u64,
        /// What makes it stale.
        why: Stale,
    },
    /// The same key with other contents.
    #[error("{0}")]
    Conflict(String),
    /// Fenced: nothing of this scope may generate any more.
    #[error("rollout closed: {0}")]
    RolloutClosed(String),
    /// The session has its result; nothing is recorded any more.
    #[error("session ended ({outcome}): no further turn is accepted")]
    SessionEnded {
        /// Its outcome.
        outcome: &'static str,
    },
    /// A size limit.
    #[error("{0}")]
    TooLarge(String),
    /// A count limit.
    #[error("{0}")]
    TooMany(String),
    /// Nothing to send the request to.
    #[error("no engine is available: {0}")]
    NoEngine(String),
    /// The engine could not be spoken to, or broke off.
    #[error("backend transport error: {0}")]
    Transport(String),
    /// The engine answered nonsense; nothing was recorded.
    #[error("{0}")]
    BadReply(String),
    /// The engine did not answer in time.
    #[error("the engine did not answer within {0} s")]
    EngineTimeout(u64),
    /// The engine of this address has work and answers nothing: it was given up. It may still be at the request.
    #[error("the engine {0} has work and answers nothing, it was given up")]
    EngineSilent(String),
    /// Our fault.
    #[error("{0}")]
    Internal(String),
}

/// What a client may conclude.
struct Verdict {
    status: StatusCode,
    code: &'static str,
    /// `Some(false)`: sending it again cannot help.
    retry: Option<bool>,
}

impl ApiError {
    /// The router ends, and with it every session.
    pub(crate) fn router_stops() -> Self {
        Self::RolloutClosed("the router is stopping".to_owned())
    }

    fn verdict(&self) -> Verdict {
        use StatusCode as S;
        let (status, code, retry) = match self {
            Self::BadRequest(_) => (S::BAD_REQUEST, "invalid_request_error", Some(false)),
            Self::ContextLength { .. } => (S::BAD_REQUEST, "context_length_exceeded", Some(false)),
            Self::Unauthorized(_) => (S::UNAUTHORIZED, "invalid_token", Some(false)),
            Self::Forbidden(_) => (S::FORBIDDEN, "forbidden", Some(false)),
            Self::SessionNotFound(_) => (S::NOT_FOUND, "session_not_found", Some(false)),
            Self::NotFound(_) => (S::NOT_FOUND, "not_found", Some(false)),
            Self::MethodNotAllowed => (S::METHOD_NOT_ALLOWED, "method_not_allowed", Some(false)),
            Self::RequestTimeout => (S::REQUEST_TIMEOUT, "request_timeout", None),
            Self::StaleGeneration { .. } => (S::CONFLICT, "stale_generation", Some(false)),
            Self::Conflict(_) => (S::CONFLICT, "conflict", Some(false)),
            Self::RolloutClosed(_) => (S::GONE, "rollout_closed", Some(false)),
            Self::SessionEnded { .. } => (S::GONE, "session_ended", Some(false)),
            Self::TooLarge(_) => (S::PAYLOAD_TOO_LARGE, "too_large", Some(false)),
            Self::TooMany(_) => (S::TOO_MANY_REQUESTS, "too_many", Some(false)),
            Self::NoEngine(_) => (S::SERVICE_UNAVAILABLE, "no_engine", Some(true)),
            Self::Transport(_) => (S::BAD_GATEWAY, "engine_transport", None),
            Self::BadReply(_) => (S::BAD_GATEWAY, "engine_reply", None),
            Self::EngineTimeout(_) => (S::GATEWAY_TIMEOUT, "engine_timeout", None),
            Self::EngineSilent(_) => (S::GATEWAY_TIMEOUT, "engine_silent", None),
            Self::Internal(_) => (S::INTERNAL_SERVER_ERROR, "internal", None),
        };
        Verdict {
            status,
            code,
            retry,
        }
    }

    /// Stable name of the kind of error, for metrics and clients.
    pub fn code(&self) -> &'static str {
        self.verdict().code
    }

    /// The status that it is answered with.
    pub fn status(&self) -> StatusCode {
        self.verdict().status
    }

    /// The body that it is answered with.
    pub(crate) fn body(&self) -> Bytes {
        let code = self.code();
        let body = json!({"error": {"message": self.to_string(), "type": code, "code": code}});
        Bytes::from(body.to_string())
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        let Verdict { status, retry, .. } = self.verdict();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, crate::headers::JSON);
        if let Some(retry) = retry {
            let value = if retry { "true" } else { "false" };
            headers.insert(SHOULD_RETRY, HeaderValue::from_static(value));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::ApiError as E;
    use crate::jobs::Stale;

    /// Status, code, and what a client is told about a repetition, of every error.
    #[test]
    fn a_client_is_told_when_a_repetition_cannot_help() {
        let text = String::new;
        let stale = E::StaleGeneration {
            slot: text(),
            generation: 1,
            why: Stale::Ended(1),
        };
        let length = E::ContextLength { limit: 1, used: 2 };
        for (error, status, code, retry) in [
            // The client's fault, or the end: the same request gets the same answer.
            (E::BadRequest(text()), 400, "invalid_request_error", "false"),
            (length, 400, "context_length_exceeded", "false"),
            (E::Unauthorized(""), 401, "invalid_token", "false"),
            (E::Forbidden(text()), 403, "forbidden", "false"),
            (
                E::SessionNotFound(text()),
                404,
                "session_not_found",
                "false",
            ),
            (E::NotFound(text()), 404, "not_found", "false"),
            (E::MethodNotAllowed, 405, "method_not_allowed", "false"),
            (stale, 409, "stale_generation", "false"),
            (E::Conflict(text()), 409, "conflict", "false"),
            (E::RolloutClosed(text()), 410, "rollout_closed", "false"),
            (
                E::SessionEnded { outcome: "" },
                410,
                "session_ended",
                "false",
            ),
            (E::TooLarge(text()), 413, "too_large", "false"),
            (E::TooMany(text()), 429, "too_many", "false"),
            // Not the client's fault, and nothing was recorded: clients repeat these by their status.
            (E::RequestTimeout, 408, "request_timeout", ""),
            (E::Internal(text()), 500, "internal", ""),
            (E::Transport(text()), 502, "engine_transport", ""),
            (E::BadReply(text()), 502, "engine_reply", ""),
            (E::NoEngine(text()), 503, "no_engine", "true"),
            (E::EngineTimeout(1), 504, "engine_timeout", ""),
            (E::EngineSilent(text()), 504, "engine_silent", ""),
        ] {
            assert_eq!((error.status().as_u16(), error.code()), (status, code));
            let headers = error.headers();
            let told = headers.get("x-should-retry");
            let told = told.map_or("", |value| value.to_str().unwrap());
            assert_eq!(told, retry, "{code}");
        }
    }
}
