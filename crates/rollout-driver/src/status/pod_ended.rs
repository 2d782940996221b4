//! `POST /pod-ended`: the controller's word that a pod is gone, passed on to the router.
//!
//! The controller reaches the driver only: the router's control port is a loopback address. Who asks proves itself with the control
//! token before anything of the body is read.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use sglang_client::ClientError;
use subtle::ConstantTimeEq;

use super::http::Server;

/// Longest body.
const BODY_BYTES: usize = 64 << 10;

/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(10);

pub(super) async fn pod_ended(State(server): State<Server>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let answer = async {
        check(server.control_token.as_deref(), &parts.headers)?;
        let pod = read(body, server.router.job()).await?;
        server
            .router
            .pod_ended(&pod)
            .await
            .map_err(Refusal::of_router)
    };
    match answer.await {
        Ok(answer) => Json(answer).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// Why it was not passed on.
#[derive(Debug, PartialEq)]
struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            status,
            code,
            message,
        }
    }

    fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// What the router refuses is the caller's fault; that it does not answer is not, and the call can be repeated.
    fn of_router(error: ClientError) -> Self {
        match error {
            ClientError::Status {
                status: 400, body, ..
            } => Self::bad(body.message),
            error => Self::new(StatusCode::BAD_GATEWAY, "router", error.to_string()),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self {
            status,
            code,
            message,
        } = self;
        let body = json!({"error": {"message": message, "type": code, "code": code}});
        (status, Json(body)).into_response()
    }
}

fn check(expected: Option<&str>, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(expected) = expected else {
        let message = "this driver was started without a control token: tell the router itself";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", message));
    };
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "))
        .unwrap_or_default();
    if given.ct_eq(expected.as_bytes()).into() {
        return Ok(());
    }
    let message = "the control token is missing or wrong";
    Err(Refusal::new(
        StatusCode::UNAUTHORIZED,
        "invalid_token",
        message,
    ))
}

/// The body, for the driver's own job.
async fn read(body: Body, job: &str) -> Result<Value, Refusal> {
    let bytes = tokio::time::timeout(BODY_TIME, to_bytes(body, BODY_BYTES))
        .await
        .map_err(|_| {
            let message = "the request body did not arrive in time";
            Refusal::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
        })?
        .map_err(|error| {
            let message = format!(
                "the request body cannot be read, or has more than {BODY_BYTES} bytes: {error}"
            );
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        })?;
    let mut pod: Map<String, Value> = serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::bad(format!("invalid JSON body: {error}")))?;
    if let Some(other) = pod.get("job").filter(|named| *named != job) {
        return Err(Refusal::bad(format!(
            "job is {other}: this is the driver of {job}"
        )));
    }
    pod.insert("job".to_owned(), json!(job));
    Ok(Value::Object(pod))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{HeaderMap, StatusCode};

    use super::{check, read};

    fn bearer(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", value.parse().unwrap());
        headers
    }

    #[test]
    fn only_the_control_token_opens() {
        assert_eq!(check(Some("token"), &bearer("Bearer token")), Ok(()));
        for headers in [
            HeaderMap::new(),
            bearer("Bearer "),
            bearer("Bearer toke"),
            bearer("Bearer token2"),
            bearer("token"),
            bearer("Basic token"),
        ] {
            let refusal = check(Some("token"), &headers).unwrap_err();
            assert_eq!(refusal.status, StatusCode::UNAUTHORIZED);
        }
        let refusal = check(None, &bearer("Bearer ")).unwrap_err();
        assert_eq!(refusal.status, StatusCode::FORBIDDEN);
    }

    #[tokio::test]
    async fn a_pod_is_of_the_drivers_job() {
        let read = |text: &str| read(Body::from(text.to_owned()), "swe");
        let pod = read(r#"{"slot": 3, "generation": 7}"#).await.unwrap();
        assert_eq!(pod["job"], "swe");
        assert_eq!(pod["slot"], 3);
        read(r#"{"job": "swe"}"#).await.unwrap();
        let other = read(r#"{"job": "math"}"#).await.unwrap_err();
        assert_eq!(other.message, r#"job is "math": this is the driver of swe"#);
        for wrong in ["", "[]", "{", "3"] {
            let refusal = read(wrong).await.unwrap_err();
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST, "{wrong}");
        }
        let long = format!("{{\"reason\": \"{}\"}}", "x".repeat(70_000));
        let refusal = read(&long).await.unwrap_err();
        assert_eq!(refusal.status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
