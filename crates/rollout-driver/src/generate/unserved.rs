//! Requests that no engine took: which answers say so, and when a full queue is asked again. Pure.

use std::time::Duration;

use sglang_client::ClientError;

/// The longest pause before a full queue is asked again: an engine that gets room is not idle for long.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What SGLang says with its status 503 when `--max-queued-requests` are waiting.
const QUEUE_IS_FULL: &str = "queue is full";

/// Whether an engine that works had no room for the request.
pub(super) fn is_pushback(error: &ClientError) -> bool {
    match error {
        ClientError::Status { status, body, .. } => is_full(*status, &body.message),
        _ => false,
    }
}

/// Whether nothing worked at the request: it was not sent, or was answered by somebody who had no engine or no room for it.
pub(super) fn is_unserved(error: &ClientError) -> bool {
    error.is_unsent() || matches!(error.status(), Some(429 | 503))
}

/// The same of a turn that failed in a session, by the router's code and words (docs/protocol.md section 3).
pub(super) fn is_unserved_turn(code: &str, message: &str) -> bool {
    let answered = |status: u16| message.starts_with(&format!("the engine answered {status}"));
    code == "no_engine" || (code == "engine_error" && (answered(429) || answered(503)))
}

/// The pause before a full queue is asked for the `tries`-th time again, from 0. `jitter` is between 0 and 1: requests that were turned
/// away together do not come back together.
pub(super) fn pushback_pause(first: Duration, tries: u32, jitter: f64) -> Duration {
    let doubled = 1u32.checked_shl(tries).unwrap_or(u32::MAX);
    let full = first.saturating_mul(doubled).min(LONGEST_PAUSE);
    full.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

fn is_full(status: u16, message: &str) -> bool {
    status == 429 || (status == 503 && message.contains(QUEUE_IS_FULL))
}

#[cfg(test)]
mod tests {
    use sglang_client::ErrorBody;

    use super::*;

    fn answered(status: u16, message: &str) -> ClientError {
        ClientError::Status {
            url: "http://r/generate".into(),
            status,
            body: ErrorBody {
                message: message.into(),
                ..ErrorBody::default()
            },
        }
    }

    #[test]
    fn a_full_queue_is_pushback_and_a_missing_engine_is_not() {
        for (status, message, pushback, unserved) in [
            (503, "The request queue is full.", true, true),
            (429, "too many", true, true),
            (503, "no engine is available: none answers", false, true),
            (500, "The request queue is full.", false, false),
            (502, "backend transport error", false, false),
            (400, "too long", false, false),
        ] {
            let error = answered(status, message);
            assert_eq!(
                (is_pushback(&error), is_unserved(&error)),
                (pushback, unserved),
                "{error}"
            );
        }
    }

    #[test]
    fn of_a_session_only_a_turn_that_nobody_took_is_unserved() {
        for (code, message, unserved) in [
            ("no_engine", "no engine is available", true),
            ("engine_error", "the engine answered 503: full", true),
            ("engine_error", "the engine answered 500: 503", false),
            ("engine_transport", "backend transport error", false),
        ] {
            assert_eq!(
                is_unserved_turn(code, message),
                unserved,
                "{code} {message}"
            );
        }
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let first = Duration::from_millis(250);
        let pauses = [0, 1, 2, 3, 4, 5, 40].map(|tries| pushback_pause(first, tries, 1.0));
        let millis = pauses.map(|pause| pause.as_millis());
        assert_eq!(millis, [250, 500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(pushback_pause(first, 0, 0.0), first / 2);
    }
}
