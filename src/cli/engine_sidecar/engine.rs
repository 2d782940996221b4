//! What the engine beside us is asked. Every question has a deadline, and none of them is `/health`, but for an engine that begins.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use sglang_client::{Backoff, Client, ClientError, ClientOptions};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use super::drain::Seen;
use super::weights::Weights;

/// For one question.
const LIMIT: Duration = Duration::from_secs(2);

/// For the health of an engine that begins: it generates a token.
const HEALTH: Duration = Duration::from_secs(5);

/// How long an answer holds: many routers ask for the state.
const FRESH: Duration = Duration::from_secs(1);

/// What is known of the engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Known {
    /// Its weights.
    pub(super) weights: Option<Weights>,
    /// Whether it is paused; SGLang before 0.5.17 does not tell.
    pub(super) paused: Option<bool>,
    /// Version of SGLang.
    pub(super) server_version: Option<String>,
    /// Why something of this is not known.
    pub(super) error: Option<String>,
}

/// The engine.
#[derive(Debug)]
pub(super) struct Engine {
    client: Client,
    /// The latest answer; whoever asks while another one asks waits for that.
    latest: Mutex<Option<(Instant, Known)>>,
    /// Version of SGLang, asked for until it is known: it stays as long as the pod.
    server_version: OnceCell<String>,
}

impl Engine {
    pub(super) fn new(url: &str, key: Option<String>) -> Result<Self, reqwest::Error> {
        let options = ClientOptions {
            token: key,
            connect: LIMIT,
            control: LIMIT,
            backoff: Backoff::none(),
            ..ClientOptions::default()
        };
        Ok(Self {
            client: Client::new(url, options)?,
            latest: Mutex::new(None),
            server_version: OnceCell::new(),
        })
    }

    /// What is known of it, not older than a second.
    pub(super) async fn known(&self) -> Known {
        let mut latest = self.latest.lock().await;
        if let Some((at, known)) = &*latest
            && at.elapsed() < FRESH
        {
            return known.clone();
        }
        let known = self.ask().await;
        *latest = Some((Instant::now(), known.clone()));
        known
    }

    async fn ask(&self) -> Known {
        let (weights, paused, server_version) =
            tokio::join!(self.weights(), self.paused(), self.server_version());
        let mut known = Known {
            server_version,
            ..Known::default()
        };
        match weights {
            Ok(weights) => known.weights = Some(weights),
            Err(error) => known.error = Some(error.to_string()),
        }
        match paused {
            Ok(paused) => known.paused = paused,
            Err(error) => known.error = Some(error.to_string()),
        }
        known
    }

    /// What it has loaded, as it says now.
    pub(super) async fn weights(&self) -> Result<Weights, ClientError> {
        let info = self.client.model_info().await?;
        Ok(Weights {
            path: info.model_path,
            version: info.weight_version,
        })
    }

    /// Whether an engine that begins can work. Only such a one is asked: what is paused fails here.
    pub(super) async fn health(&self) -> Result<(), ClientError> {
        let answer = self
            .client
            .send_within(Method::GET, "/health", None, HEALTH, &[]);
        answer.await.map(drop)
    }

    /// Loads a checkpoint into an engine that has no work yet.
    pub(super) async fn load(&self, weights: &Weights, limit: Duration) -> Result<(), ClientError> {
        const PATH: &str = "/update_weights_from_disk";
        let mut body = json!({"model_path": weights.path});
        if let Some(version) = &weights.version {
            body["weight_version"] = json!(version);
        }
        let answer = self
            .client
            .send_within(Method::POST, PATH, Some(&body), limit, &[]);
        answer.await.map(drop)
    }

    /// SGLang before 0.5.17 does not tell it here; then it is not known.
    async fn server_version(&self) -> Option<String> {
        let asked = self.server_version.get_or_try_init(|| async {
            let version = self.client.loads().await.ok().map(|loads| loads.version);
            version.filter(|version| !version.is_empty()).ok_or(())
        });
        asked.await.ok().cloned()
    }

    /// `/ready` is `/ping`, and not paused.
    async fn paused(&self) -> Result<Option<bool>, ClientError> {
        let get = |path: &'static str| async move {
            let answer = self.client.send(Method::GET, path, None).await;
            match answer {
                Ok(_) => Ok(200),
                Err(ClientError::Status { status, .. }) => Ok(status),
                Err(error) => Err(error),
            }
        };
        Ok(match (get("/ping").await?, get("/ready").await?) {
            (_, 200) => Some(false),
            (200, 503) => Some(true),
            _ => None,
        })
    }

    /// What it has to do.
    pub(super) async fn look(&self) -> Seen {
        let (loads, paused) = tokio::join!(self.client.loads(), self.paused());
        match (loads, paused) {
            (Err(ClientError::NotReached { .. }), _) => Seen::Gone,
            (Err(error), _) => Seen::Unknown(error.to_string()),
            (Ok(_), Ok(Some(true))) => Seen::Paused,
            (Ok(loads), _) => Seen::Requests(loads.requests()),
        }
    }
}
