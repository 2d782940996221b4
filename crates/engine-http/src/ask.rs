//! Single questions to engines: small, with a deadline each. Redirects are answers.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::connector::{ConnectError, Connector};
use crate::trust::Trust;

/// Below the keep-alive of uvicorn (5 s).
const POOL_IDLE: Duration = Duration::from_secs(3);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Asks engines.
#[derive(Clone, Debug)]
pub struct Asker {
    client: Client<Connector, Full<Bytes>>,
    authorization: Option<HeaderValue>,
    longest: usize,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// How.
    pub method: Method,
    /// Where: `http://` or `https://`.
    pub url: &'a str,
    /// JSON that is sent along.
    pub body: Option<Bytes>,
    /// Longest wait for the whole answer.
    pub within: Duration,
}

/// An answer did not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The address is none.
    NotAnAddress,
    /// Nobody takes the connection, and the system's word for it.
    NotReached(String),
    /// Whoever listens is no engine that is trusted.
    NotTrusted(String),
    /// Whoever listens did not come to an end of the handshake.
    NoHandshake(String),
    /// It answers something else than HTTP.
    NotHttp,
    /// The connection ended before the answer did, and why.
    Broken(String),
    /// No whole answer in time.
    TimedOut(Duration),
    /// More than so many bytes.
    TooLong(usize),
}

impl Problem {
    /// What it means that a request over a [`Connector`] has no answer.
    pub fn of(error: &hyper_util::client::legacy::Error, encrypted: bool) -> Self {
        unanswered(error, encrypted)
    }

    /// Whether a person must act: what listens there is no engine that may be asked, however often it is.
    pub fn lasts(&self) -> bool {
        matches!(
            self,
            Self::NotAnAddress | Self::NotTrusted(_) | Self::NotHttp
        )
    }

    /// Words that do not change with every try: a status has them.
    pub fn words(&self) -> String {
        match self {
            Self::NotAnAddress => "is not an address".to_owned(),
            Self::NotReached(_) => "takes no connection".to_owned(),
            Self::NotTrusted(why) | Self::NoHandshake(why) => why.clone(),
            Self::NotHttp => {
                "does not answer in plain HTTP: if it speaks TLS, write https://".to_owned()
            }
            Self::Broken(_) => "ends connections without an answer".to_owned(),
            Self::TimedOut(limit) => format!("does not answer within {} s", limit.as_secs()),
            Self::TooLong(longest) => format!("answers more than {longest} bytes"),
        }
    }
}

impl Asker {
    /// Takes up to `connect` for a connection, and up to `longest` bytes of an answer.
    pub fn new(connect: Duration, trust: Trust, longest: usize) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .build(Connector::new(connect, trust));
        Self {
            client,
            authorization: None,
            longest,
        }
    }

    /// The same, with a key in every question. One that cannot be in a header is left out: the engine then says that it asks for one.
    #[must_use]
    pub fn with_key(self, key: &str) -> Self {
        let value = HeaderValue::from_str(&format!("Bearer {key}"));
        let authorization = value.ok().map(|mut value| {
            value.set_sensitive(true);
            value
        });
        Self {
            authorization,
            ..self
        }
    }

    /// Whether it has a key.
    pub fn has_key(&self) -> bool {
        self.authorization.is_some()
    }

    /// Asks.
    ///
    /// # Errors
    /// There is no whole answer.
    pub async fn ask(&self, question: Question<'_>) -> Result<(StatusCode, Bytes), Problem> {
        let Question {
            method,
            url,
            body,
            within,
        } = question;
        let uri: Uri = url.parse().map_err(|_| Problem::NotAnAddress)?;
        let encrypted = uri.scheme_str() == Some("https");
        let is_json = body.is_some();
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        if is_json {
            request.headers_mut().insert(CONTENT_TYPE, JSON);
        }
        if let Some(authorization) = &self.authorization {
            let headers = request.headers_mut();
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let whole = async {
            let answer = self.client.request(request).await;
            let (head, body) = answer
                .map_err(|error| Problem::of(&error, encrypted))?
                .into_parts();
            let body = Limited::new(body, self.longest).collect().await;
            let body = body.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    Problem::TooLong(self.longest)
                } else {
                    Problem::Broken(root(&*error))
                }
            })?;
            Ok((head.status, body.to_bytes()))
        };
        let answer = tokio::time::timeout(within, whole).await;
        answer.unwrap_or(Err(Problem::TimedOut(within)))
    }
}

fn unanswered(error: &hyper_util::client::legacy::Error, encrypted: bool) -> Problem {
    let connecting = causes(error).find_map(|cause| cause.downcast_ref::<ConnectError>());
    match connecting {
        Some(ConnectError::Tls(why)) => return Problem::NotTrusted(why.clone()),
        Some(hangs @ (ConnectError::Slow(_) | ConnectError::HungUp(_))) => {
            return Problem::NoHandshake(hangs.to_string());
        }
        Some(ConnectError::Tcp(_)) | None => {}
    }
    if error.is_connect() {
        return Problem::NotReached(root(error));
    }
    let is_no_http = causes(error).any(|cause| {
        let cause = cause.downcast_ref::<hyper::Error>();
        cause.is_some_and(hyper::Error::is_parse)
    });
    if is_no_http && !encrypted {
        return Problem::NotHttp;
    }
    Problem::Broken(root(error))
}

type Cause = dyn std::error::Error + 'static;

fn causes(error: &Cause) -> impl Iterator<Item = &Cause> {
    std::iter::successors(error.source(), |cause| cause.source())
}

/// The innermost cause, which names the refusal itself.
fn root(error: &Cause) -> String {
    causes(error)
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string)
}
