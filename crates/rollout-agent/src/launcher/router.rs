//! The router's agents' port, as the launcher uses it: claim, heartbeat, events, result.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::outcome::SessionResult;
use crate::wire::AgentKind;

/// Largest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take, beyond the time that a long poll waits.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// The router was not reached, or broke off.
    #[error("the router does not answer")]
    Unreachable(#[source] reqwest::Error),
    /// It answered with a status that is no success.
    #[error("the router answered {status} to {call}: {message}")]
    Refused {
        /// The call.
        call: &'static str,
        /// The status.
        status: StatusCode,
        /// The error's text, bounded.
        message: String,
    },
    /// It answered something that is not the protocol.
    #[error("the router's answer to {call} is not understood")]
    Malformed {
        /// The call.
        call: &'static str,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// It answered more than is read.
    #[error("the router's answer to {call} is too large")]
    TooLarge {
        /// The call.
        call: &'static str,
    },
}

impl RouterError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused { status, .. } => {
                status.is_server_error()
                    || matches!(
                        *status,
                        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
                    )
            }
            Self::Malformed { .. } | Self::TooLarge { .. } => false,
        }
    }

    /// Whether the router does not know the session (any more).
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if matches!(*status, StatusCode::NOT_FOUND | StatusCode::GONE))
    }
}

/// A session that was claimed.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Claim {
    pub(super) session_id: String,
    pub(super) base_url: String,
    #[serde(default)]
    pub(super) token: String,
    #[serde(default)]
    pub(super) prompt: Value,
    #[serde(default)]
    pub(super) request_kwargs: Map<String, Value>,
    #[serde(default)]
    pub(super) metadata: Map<String, Value>,
    #[serde(default)]
    pub(super) deadline_seconds: Option<f64>,
    #[serde(default = "default_heartbeat")]
    pub(super) heartbeat_seconds: f64,
    #[serde(default)]
    pub(super) resume: bool,
    #[serde(default)]
    pub(super) alone: bool,
}

fn default_heartbeat() -> f64 {
    10.0
}

/// What a claim gave.
#[derive(Debug)]
pub(super) enum Claimed {
    Session(Box<Claim>),
    Nothing,
    Closed,
}

/// State of a session, as the answer to a heartbeat says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SessionState {
    Running,
    Aborting,
    Ended,
    #[serde(other)]
    Unknown,
}

/// An abort of a session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct AbortEvent {
    pub(super) abort_id: String,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default = "default_hook_timeout")]
    pub(super) timeout_seconds: f64,
    #[serde(default)]
    pub(super) drain_seconds: Option<f64>,
    #[serde(default)]
    pub(super) args: Map<String, Value>,
}

fn default_hook_timeout() -> f64 {
    30.0
}

/// What a session is claimed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To run it.
    Run(AgentKind),
    /// To say on it that the agent cannot be loaded.
    Report,
}

#[derive(Serialize)]
struct ClaimBody<'a> {
    claim_id: &'a str,
    wait_seconds: f64,
    /// The agent has been loaded; of a command nobody knows before it runs.
    loaded: bool,
}

#[derive(Deserialize)]
struct ResultAnswer {
    #[serde(default)]
    abort: Option<AbortEvent>,
}

#[derive(Deserialize)]
struct HeartbeatAnswer {
    state: SessionState,
}

/// A client with a pod's claim token.
#[derive(Debug)]
pub(super) struct Router {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Router {
    pub(super) fn new(url: &str, token: String) -> Result<Self, RouterError> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(RouterError::Unreachable)?;
        Ok(Self {
            http,
            url: url.trim_end_matches('/').to_owned(),
            token,
        })
    }

    /// Waits for a session. The same `claim_id` gives the same session again.
    pub(super) async fn claim(
        &self,
        claim_id: &str,
        purpose: Purpose,
        wait: Duration,
    ) -> Result<Claimed, RouterError> {
        let body = ClaimBody {
            claim_id,
            wait_seconds: wait.as_secs_f64(),
            loaded: purpose == Purpose::Run(AgentKind::Function),
        };
        let answer = self
            .call(
                "a claim",
                Method::POST,
                "/agent/claim",
                Some(&body),
                wait + ANSWER_TIMEOUT,
            )
            .await;
        match answer {
            Ok(None) => Ok(Claimed::Nothing),
            Ok(Some(text)) => Ok(Claimed::Session(parse("a claim", &text)?)),
            Err(RouterError::Refused {
                status: StatusCode::GONE,
                ..
            }) => Ok(Claimed::Closed),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn heartbeat(
        &self,
        session_id: &str,
        timeout: Duration,
    ) -> Result<SessionState, RouterError> {
        let path = format!("/agent/sessions/{session_id}/heartbeat");
        let answer = self
            .call(
                "a heartbeat",
                Method::POST,
                &path,
                Some(&Map::new()),
                timeout,
            )
            .await?;
        match answer {
            None => Ok(SessionState::Running),
            Some(text) => Ok(parse::<HeartbeatAnswer>("a heartbeat", &text)?.state),
        }
    }

    /// Waits for an abort of a session.
    pub(super) async fn event(
        &self,
        session_id: &str,
        wait: Duration,
    ) -> Result<Option<AbortEvent>, RouterError> {
        let path = format!(
            "/agent/sessions/{session_id}/events?wait_seconds={}",
            wait.as_secs()
        );
        let answer = self
            .call::<()>(
                "an events poll",
                Method::GET,
                &path,
                None,
                wait + ANSWER_TIMEOUT,
            )
            .await?;
        answer
            .map(|text| parse("an events poll", &text))
            .transpose()
    }

    /// Posts a result. An answer with an abort says that the session is being aborted, which the launcher had not heard yet: its hook runs
    /// first, and the result is posted again.
    pub(super) async fn result(
        &self,
        session_id: &str,
        result: &SessionResult,
    ) -> Result<Option<AbortEvent>, RouterError> {
        let path = format!("/agent/sessions/{session_id}/result");
        let call = "a result";
        let answer = self
            .call(call, Method::POST, &path, Some(result), ANSWER_TIMEOUT)
            .await?;
        let Some(text) = answer else { return Ok(None) };
        parse::<ResultAnswer>(call, &text).map(|answer| answer.abort)
    }

    async fn call<B: Serialize>(
        &self,
        call: &'static str,
        method: Method,
        path: &str,
        body: Option<&B>,
        timeout: Duration,
    ) -> Result<Option<Vec<u8>>, RouterError> {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.url))
            .bearer_auth(&self.token)
            .timeout(timeout);
        if let Some(body) = body {
            request = request.json(body);
        }
        let mut response = request.send().await.map_err(RouterError::Unreachable)?;
        let status = response.status();
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(RouterError::Unreachable)? {
            if text.len() + chunk.len() > MAX_ANSWER {
                return Err(RouterError::TooLarge { call });
            }
            text.extend_from_slice(&chunk);
        }
        if !status.is_success() {
            return Err(RouterError::Refused {
                call,
                status,
                message: error_text(&text),
            });
        }
        Ok((status != StatusCode::NO_CONTENT && !text.is_empty()).then_some(text))
    }
}

fn parse<T: DeserializeOwned>(call: &'static str, text: &[u8]) -> Result<T, RouterError> {
    serde_json::from_slice(text).map_err(|source| RouterError::Malformed { call, source })
}

/// The message of an error body, or the start of the body.
fn error_text(body: &[u8]) -> String {
    let message = serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|value| {
            value
                .pointer("/error/message")
                .and_then(Value::as_str)
                .map(str::to_owned)
        });
    message.unwrap_or_else(|| String::from_utf8_lossy(body).chars().take(200).collect())
}
