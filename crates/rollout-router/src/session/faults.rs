//! What engines did to the turns of a session. Pure.
//!
//! An agent that ends after its engine failed it says nothing about the agent: the driver runs such a sample again. So the session
//! remembers whether its latest turn was failed by an engine, and how many were in a row.

use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use crate::error::ApiError;

/// Longest message that is kept.
const MESSAGE_BYTES: usize = 1 << 10;

/// A turn that an engine failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct EngineFault {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl EngineFault {
    /// The fault behind an error, if it is the engines'.
    pub(crate) fn of_error(error: &ApiError) -> Option<Self> {
        let of_engine = matches!(
            error,
            ApiError::NoEngine(_)
                | ApiError::Transport(_)
                | ApiError::BadReply(_)
                | ApiError::EngineTimeout(_)
                | ApiError::EngineSilent(_)
        );
        of_engine.then(|| Self {
            code: error.code(),
            message: bounded(error.to_string(), MESSAGE_BYTES),
        })
    }

    /// The fault that an engine's answer states. What else it answers with 4xx is its client's fault.
    pub(crate) fn of_reply(status: StatusCode, body: &[u8]) -> Option<Self> {
        is_of_engine(status).then(|| {
            let text = error_text(body);
            Self {
                code: "engine_error",
                message: bounded(
                    format!("the engine answered {}: {text}", status.as_u16()),
                    MESSAGE_BYTES,
                ),
            }
        })
    }
}

/// Whether a status is the fault of an engine or of its operation: what a session sends has no say in the engine's key, in who may
/// use it, or in how much it takes at once.
fn is_of_engine(status: StatusCode) -> bool {
    let of_operation = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    status.is_server_error() || of_operation.contains(&status)
}

/// The text of an engine's error, which comes in several shapes.
fn error_text(body: &[u8]) -> String {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &parsed["error"];
    [&error["message"], error, &parsed["message"]]
        .into_iter()
        .find_map(Value::as_str)
        .map_or_else(
            || String::from_utf8_lossy(&body[..body.len().min(MESSAGE_BYTES)]).into_owned(),
            str::to_owned,
        )
}

/// The first `limit` bytes of a text, or a little less.
pub(crate) fn bounded(mut text: String, limit: usize) -> String {
    text.truncate(text.floor_char_boundary(limit));
    text
}

/// The faults of a session.
#[derive(Debug, Default)]
pub(crate) struct EngineFaults {
    last: Option<EngineFault>,
    in_a_row: usize,
}

impl EngineFaults {
    /// A turn was failed. Answers how many were in a row.
    pub(crate) fn note(&mut self, fault: EngineFault) -> usize {
        self.last = Some(fault);
        self.in_a_row += 1;
        self.in_a_row
    }

    /// An engine did its work: a turn was recorded, or refused for its client's fault.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The fault that ended the latest turn, if one did.
    pub(crate) fn last(&self) -> Option<&EngineFault> {
        self.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::{EngineFault, EngineFaults, bounded};
    use crate::error::ApiError;

    #[test]
    fn the_clients_faults_are_not_the_engines() {
        let of = |error: ApiError| EngineFault::of_error(&error).map(|fault| fault.code);
        assert_eq!(of(ApiError::NoEngine(String::new())), Some("no_engine"));
        assert_eq!(of(ApiError::BadReply(String::new())), Some("engine_reply"));
        assert_eq!(of(ApiError::EngineTimeout(3)), Some("engine_timeout"));
        assert_eq!(of(ApiError::BadRequest(String::new())), None);
        assert_eq!(of(ApiError::RolloutClosed(String::new())), None);
        assert_eq!(of(ApiError::SessionEnded { outcome: "aborted" }), None);
        for status in [200, 400, 404, 408, 413, 422] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(EngineFault::of_reply(status, b"{}"), None);
        }
        for status in [401, 403, 429, 500, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            let fault = EngineFault::of_reply(status, b"{}").unwrap();
            assert_eq!(fault.code, "engine_error");
        }
    }

    #[test]
    fn the_text_of_an_engines_error_is_found_in_every_shape() {
        for body in [
            r#"{"error":{"message":"full"}}"#,
            r#"{"error":"full"}"#,
            r#"{"object":"error","message":"full","code":503}"#,
            "full",
        ] {
            let fault = EngineFault::of_reply(StatusCode::SERVICE_UNAVAILABLE, body.as_bytes());
            let message = fault.map(|fault| fault.message);
            assert_eq!(message.as_deref(), Some("the engine answered 503: full"));
        }
        let long = "é".repeat(4_000);
        let fault = EngineFault::of_reply(StatusCode::BAD_GATEWAY, long.as_bytes()).unwrap();
        assert!((1_020..=1_024).contains(&fault.message.len()));
    }

    #[test]
    fn faults_count_until_an_engine_does_its_work() {
        let fault = |message: &str| EngineFault {
            code: "engine_error",
            message: message.to_owned(),
        };
        let mut faults = EngineFaults::default();
        assert_eq!(faults.note(fault("first")), 1);
        assert_eq!(faults.note(fault("second")), 2);
        assert_eq!(faults.last(), Some(&fault("second")));
        faults.clear();
        assert_eq!(faults.last(), None);
        assert_eq!(faults.note(fault("third")), 1);
    }

    #[test]
    fn a_bounded_text_ends_between_two_characters() {
        assert_eq!(bounded("aéé".to_owned(), 4), "aé");
        assert_eq!(bounded("aé".to_owned(), 4), "aé");
    }
}
