//! HTTP towards the engines.
//!
//! Generation and control have connections of their own, so that an abort never queues behind generations. Idle connections are
//! given up before uvicorn closes them (5 s).
//!
//! A request is sent again in two cases. Nothing of it was written: then any engine may have it. Or it was written to a connection
//! that had been idle, and that was closed at once, without a byte of an answer: then the same engine is asked once more, under the same id, so
//! that a twin that did start would be refused as a duplicate. Everything else that may have reached an engine is never repeated.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use engine_http::Trust;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::json;
use tokio::time::Instant;

use super::connection::{Connector, failed_on_used, note_used};
use super::{Engine, Line};
use crate::config::{Config, Times};
use crate::error::ApiError;

const POOL_IDLE: Duration = Duration::from_secs(3);
/// A connection that the engine had closed before fails at once. One that fails later was closed during the work.
const AT_ONCE: Duration = Duration::from_millis(250);
/// Longest word of a sidecar.
const LONGEST_STATE: usize = 64 << 10;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A request did not get an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// Nothing of it reached the engine; another one may have it.
    #[error("{0}")]
    NotSent(String),
    /// The engine may have started it.
    #[error("{0}")]
    Broken(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl From<SendError> for ApiError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotSent(text) | SendError::Broken(text) => Self::Transport(text),
            SendError::Timeout(limit) => Self::EngineTimeout(limit.as_secs()),
        }
    }
}

type HttpClient = Client<Connector, Full<Bytes>>;

/// The way to the engines.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    generation: HttpClient,
    control: HttpClient,
    authorization: Option<HeaderValue>,
    times: Times,
}

impl Upstream {
    pub(crate) fn new(config: &Config) -> Self {
        let authorization = config.engine_key.as_ref().and_then(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        Self {
            generation: client(config.times.connect, &config.engine_trust),
            control: client(config.times.connect, &config.engine_trust),
            authorization,
            times: config.times,
        }
    }

    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// Sends a request on the generation connections and waits for the head of the answer.
    pub(crate) async fn generate(
        &self,
        engine: &Engine,
        path: PathAndQuery,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, SendError> {
        let request = |headers| {
            let (path, body) = (path.clone(), body.clone());
            self.request(engine, Method::POST, path, headers, body)
        };
        let sent = Instant::now();
        let answer = match self.answer(request(headers.clone())).await? {
            Err(error) if sent.elapsed() < AT_ONCE && was_idle_too_long(&error) => {
                self.answer(request(headers)).await?
            }
            answer => answer,
        };
        let response = answer.map_err(|error| classify(&error))?;
        engine.note_heard();
        Ok(response)
    }

    async fn answer(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Result<Response<Incoming>, Error>, SendError> {
        let answer = self.generation.request(request);
        let answer = match self.times.first_byte {
            None => answer.await,
            Some(limit) => tokio::time::timeout(limit, answer)
                .await
                .map_err(|_| SendError::Timeout(limit))?,
        };
        if let Ok(response) = &answer {
            note_used(response);
        }
        Ok(answer)
    }

    /// Sends a control call and reads the whole answer, bounded in time.
    pub(crate) async fn control(
        &self,
        engine: &Engine,
        method: Method,
        path: PathAndQuery,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), SendError> {
        let limit = self.times.control_call;
        self.control_within(engine, method, path, body, limit).await
    }

    /// A control call with its own time limit.
    pub(crate) async fn control_within(
        &self,
        engine: &Engine,
        method: Method,
        path: PathAndQuery,
        body: Bytes,
        limit: Duration,
    ) -> Result<(StatusCode, Bytes), SendError> {
        let mut headers = HeaderMap::new();
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        let request = self.request(engine, method, path, headers, body);
        let call = async {
            let answer = self.control.request(request).await;
            let (head, body) = answer.map_err(|error| classify(&error))?.into_parts();
            engine.note_heard();
            let body = body.collect().await;
            let body = body.map_err(|error| SendError::Broken(error.to_string()))?;
            Ok((head.status, body.to_bytes()))
        };
        match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer,
            Err(_) => Err(SendError::Timeout(limit)),
        }
    }

    /// What the sidecar beside an engine says. It is another server: it gets no key, and its word is no sign of the engine's life.
    pub(super) async fn state(
        &self,
        engine: &Engine,
        port: u16,
        limit: Duration,
    ) -> Result<Bytes, SendError> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = engine.beside(port, PathAndQuery::from_static("/state"));
        let call = async {
            let answer = self.control.request(request).await;
            let (head, body) = answer.map_err(|error| classify(&error))?.into_parts();
            if head.status != StatusCode::OK {
                return Err(SendError::Broken(format!("it answers {}", head.status)));
            }
            let body = Limited::new(body, LONGEST_STATE).collect().await;
            let body = body.map_err(|error| SendError::Broken(error.to_string()))?;
            Ok(body.to_bytes())
        };
        let answer = tokio::time::timeout(limit, call).await;
        answer.unwrap_or(Err(SendError::Timeout(limit)))
    }

    /// Tells an engine to end a request. A success means that it was told, not that the request has ended.
    pub(crate) async fn abort(&self, engine: &Engine, rid: &str) -> Result<(), SendError> {
        let body = Bytes::from(json!({"rid": rid}).to_string());
        let path = PathAndQuery::from_static("/abort_request");
        let (status, _) = self.control(engine, Method::POST, path, body).await?;
        if status.is_success() {
            Ok(())
        } else {
            Err(SendError::Broken(format!(
                "abort_request answered {status}"
            )))
        }
    }

    fn request(
        &self,
        engine: &Engine,
        method: Method,
        path: PathAndQuery,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        headers.insert(HOST, engine.host());
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = engine.uri(path);
        *request.headers_mut() = headers;
        request
    }
}

fn client(connect: Duration, trust: &Trust) -> HttpClient {
    let connector = engine_http::Connector::new(connect, trust.clone());
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(POOL_IDLE)
        .build(Connector(connector))
}

/// Whether a connection that had been used before was closed without a byte of an answer.
fn was_idle_too_long(error: &Error) -> bool {
    let closed = causes(error).any(|cause| {
        let in_http = cause
            .downcast_ref::<hyper::Error>()
            .is_some_and(|cause| cause.is_incomplete_message() || cause.is_closed());
        let in_socket = cause.downcast_ref::<std::io::Error>().is_some_and(|cause| {
            matches!(
                cause.kind(),
                // The last one: the end of an encrypted connection that nobody announced.
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
            )
        });
        in_http || in_socket
    });
    closed && failed_on_used(error)
}

/// Whether anything of a request can have reached the engine.
fn classify(error: &Error) -> SendError {
    let text = chain(error);
    let cancelled = causes(error).any(|cause| {
        cause
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_canceled)
    });
    if error.is_connect() || cancelled {
        SendError::NotSent(text)
    } else {
        SendError::Broken(text)
    }
}

type Cause = dyn std::error::Error + 'static;

fn causes(error: &Cause) -> impl Iterator<Item = &Cause> {
    std::iter::successors(error.source(), |cause| cause.source())
}

/// An error with its causes in one line.
fn chain(error: &Cause) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}

/// Reads an engine's reply, bounded in size and in the time between two pieces, until the engine falls silent.
pub(crate) async fn read_reply(
    line: &Line,
    body: Incoming,
    limit: usize,
    idle: Duration,
) -> Result<Bytes, ApiError> {
    line.unless_silent(read_pieces(line, body, limit, idle))
        .await?
}

async fn read_pieces(
    line: &Line,
    body: Incoming,
    limit: usize,
    idle: Duration,
) -> Result<Bytes, ApiError> {
    let mut body = body;
    let mut first: Option<Bytes> = None;
    let mut joined = bytes::BytesMut::new();
    loop {
        let frame = tokio::time::timeout(idle, body.frame())
            .await
            .map_err(|_| ApiError::EngineTimeout(idle.as_secs()))?;
        let Some(frame) = frame else { break };
        line.heard();
        let frame = frame.map_err(|error| ApiError::Transport(chain(&error)))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if first.is_none() && joined.is_empty() {
            first = Some(data);
            continue;
        }
        if let Some(start) = first.take() {
            let rest = http_body::Body::size_hint(&body).exact().unwrap_or(0);
            let rest = usize::try_from(rest).unwrap_or(limit).min(limit);
            joined.reserve(start.len() + data.len() + rest);
            joined.extend_from_slice(&start);
        }
        if joined.len() + data.len() > limit {
            return Err(ApiError::BadReply(format!(
                "the engine's reply is larger than {limit} bytes"
            )));
        }
        joined.extend_from_slice(&data);
    }
    Ok(first.unwrap_or_else(|| joined.freeze()))
}
