//! The HTTP client.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, RequestBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::error::ClientError;
use crate::retry::Backoff;
use crate::wire::{ErrorBody, GenerateReply, GenerateRequest, Loads, ModelInfo, ServerInfo};

/// How a client calls.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Bearer token of every call.
    pub token: Option<String>,
    /// Headers of every call.
    pub headers: Vec<(String, String)>,
    /// How long a connection may take.
    pub connect: Duration,
    /// Deadline of calls that do no generation.
    pub control: Duration,
    /// Tries while no connection is made.
    pub backoff: Backoff,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            token: None,
            headers: Vec::new(),
            connect: Duration::from_secs(5),
            control: Duration::from_secs(10),
            backoff: Backoff::default(),
        }
    }
}

/// A client of one server. Generation and control calls have connections of their own, so that an abort never waits for a free one.
#[derive(Debug, Clone)]
pub struct Client {
    base: String,
    options: ClientOptions,
    generation: reqwest::Client,
    control: reqwest::Client,
}

impl Client {
    /// A client of the server at `base` (`http://host:port`, without a slash at the end).
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn new(base: &str, options: ClientOptions) -> Result<Self, reqwest::Error> {
        let build = || {
            reqwest::Client::builder()
                .no_proxy()
                .connect_timeout(options.connect)
                // Below the keep-alive of uvicorn (5 s), so that no request meets a connection that is just being closed.
                .pool_idle_timeout(Duration::from_secs(3))
                .tcp_nodelay(true)
                .build()
        };
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            generation: build()?,
            control: build()?,
            options,
        })
    }

    /// The server's address.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Generates. Sent once: tries are repeated only while there is no connection.
    ///
    /// # Errors
    /// See [`ClientError`]; a timeout does not end the generation at the server, an abort by `rid` does.
    pub async fn generate(
        &self,
        request: &GenerateRequest,
        within: Duration,
        headers: &[(&str, &str)],
    ) -> Result<GenerateReply, ClientError> {
        let url = format!("{}/generate", self.base);
        let body = Some(encode(&url, request)?);
        let bytes = self
            .retry(&url, &self.generation, Method::POST, body, within, headers)
            .await?;
        decode(&url, &bytes)
    }

    /// Aborts one request, or all of the server when `rid` is `None`. SGLang answers 200 also when nothing matched.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn abort(&self, rid: Option<&str>) -> Result<(), ClientError> {
        let body = match rid {
            Some(rid) => json!({ "rid": rid }),
            None => json!({ "abort_all": true }),
        };
        self.send(Method::POST, "/abort_request", Some(&body))
            .await
            .map(drop)
    }

    /// `GET /model_info`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn model_info(&self) -> Result<ModelInfo, ClientError> {
        self.call(Method::GET, "/model_info", None).await
    }

    /// `GET /server_info`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn server_info(&self) -> Result<ServerInfo, ClientError> {
        self.call(Method::GET, "/server_info", None).await
    }

    /// `GET /v1/loads`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn loads(&self) -> Result<Loads, ClientError> {
        self.call(Method::GET, "/v1/loads", None).await
    }

    /// The text of token ids.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn detokenize(&self, model: &str, tokens: &[i64]) -> Result<String, ClientError> {
        let body = json!({ "model": model, "tokens": tokens });
        let reply: Value = self
            .call(Method::POST, "/v1/detokenize", Some(&body))
            .await?;
        match reply.get("text") {
            Some(Value::String(text)) => Ok(text.clone()),
            _ => Err(ClientError::BadReply {
                url: format!("{}/v1/detokenize", self.base),
                problem: "no text".into(),
            }),
        }
    }

    /// A control call with a JSON answer.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, ClientError> {
        let bytes = self.send(method, path, body).await?;
        decode(&format!("{}{path}", self.base), &bytes)
    }

    /// A control call within the usual deadline.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Bytes, ClientError> {
        self.send_within(method, path, body, self.options.control, &[])
            .await
    }

    /// A control call within a deadline of its own, with further headers.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send_within(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        within: Duration,
        headers: &[(&str, &str)],
    ) -> Result<Bytes, ClientError> {
        let url = format!("{}{path}", self.base);
        let body = body.map(|body| encode(&url, body)).transpose()?;
        self.retry(&url, &self.control, method, body, within, headers)
            .await
    }

    async fn retry(
        &self,
        url: &str,
        http: &reqwest::Client,
        method: Method,
        body: Option<Bytes>,
        within: Duration,
        headers: &[(&str, &str)],
    ) -> Result<Bytes, ClientError> {
        let began = Instant::now();
        let mut tries = 0;
        loop {
            tries += 1;
            let mut request = http.request(method.clone(), url);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let error = match self.once(url, request, body.clone(), within).await {
                Err(error) if error.is_unsent() => error,
                other => return other,
            };
            match self.options.backoff.pause(tries, began.elapsed(), within) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    async fn once(
        &self,
        url: &str,
        mut request: RequestBuilder,
        body: Option<Bytes>,
        within: Duration,
    ) -> Result<Bytes, ClientError> {
        if let Some(token) = &self.options.token {
            request = request.bearer_auth(token);
        }
        for (name, value) in &self.options.headers {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body);
        }
        let whole = async {
            let response = request.send().await?;
            let status = response.status().as_u16();
            Ok::<_, reqwest::Error>((status, response.bytes().await?))
        };
        let (status, bytes) = match tokio::time::timeout(within, whole).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(source)) if source.is_connect() => {
                return Err(ClientError::NotReached {
                    url: url.to_owned(),
                    source: source.without_url(),
                });
            }
            Ok(Err(source)) => {
                return Err(ClientError::Broken {
                    url: url.to_owned(),
                    source: source.without_url(),
                });
            }
            Err(_) => {
                return Err(ClientError::TimedOut {
                    url: url.to_owned(),
                    within,
                });
            }
        };
        if (200..300).contains(&status) {
            return Ok(bytes);
        }
        Err(ClientError::Status {
            url: url.to_owned(),
            status,
            body: ErrorBody::parse(&bytes),
        })
    }
}

fn encode(url: &str, body: &impl Serialize) -> Result<Bytes, ClientError> {
    serde_json::to_vec(body)
        .map(Bytes::from)
        .map_err(|error| ClientError::BadReply {
            url: url.to_owned(),
            problem: format!("the request cannot be encoded: {error}"),
        })
}

fn decode<T: DeserializeOwned>(url: &str, bytes: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(bytes).map_err(|error| ClientError::BadReply {
        url: url.to_owned(),
        problem: error.to_string(),
    })
}
