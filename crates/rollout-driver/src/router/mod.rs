//! Client of the router's control port (docs/protocol.md section 1).
//!
//! Creates and deletes are safe to repeat (an idempotency key; DELETE is idempotent), so they are tried again while there is no
//! connection. A router that restarts in place is waited for, up to a limit; the calls of a teardown are tried once.

mod outcomes;
#[cfg(test)]
mod tests;
mod types;

use std::time::Duration;

use reqwest::Method;
use rollout_session::Collected;
use serde_json::{Value, json};
use sglang_client::{Backoff, Client, ClientError, ClientOptions, GenerateReply, GenerateRequest};

use crate::status::Demand;

pub use outcomes::{OutcomeFeed, SessionEnd};
pub use types::{
    AbortAnswer, AgentAbort, CreateSession, CreatedSession, EngineFault, EngineServiceState,
    FenceAnswer, HookCounts, Outcome, OutcomeKind, OutcomePage, RouterStatus,
};

/// A client of one router, for one job.
#[derive(Debug, Clone)]
pub struct RouterClient {
    client: Client,
    /// Tries once: the teardown has its own patience.
    once: Client,
    job: String,
}

impl RouterClient {
    /// A client of the router at `url` for the job with this uid. `patience` is how long a router without a connection is waited for.
    ///
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn new(
        url: &str,
        token: Option<String>,
        job: &str,
        patience: Duration,
    ) -> Result<Self, reqwest::Error> {
        let options = ClientOptions {
            token,
            headers: vec![("x-rollout-job".to_owned(), job.to_owned())],
            backoff: Backoff {
                give_up_after: patience,
                ..Backoff::default()
            },
            ..ClientOptions::default()
        };
        let hasty = ClientOptions {
            backoff: Backoff::none(),
            ..options.clone()
        };
        Ok(Self {
            client: Client::new(url, options)?,
            once: Client::new(url, hasty)?,
            job: job.to_owned(),
        })
    }

    /// The router's address.
    pub fn url(&self) -> &str {
        self.client.base()
    }

    /// The port of its address, as a text; empty when the address has none.
    pub fn port(&self) -> String {
        let url = reqwest::Url::parse(self.url()).ok();
        url.and_then(|url| url.port_or_known_default())
            .map_or_else(String::new, |port| port.to_string())
    }

    /// The job.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Generates without a session.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn generate(
        &self,
        step: u32,
        request: &GenerateRequest,
        within: Duration,
    ) -> Result<GenerateReply, ClientError> {
        let step = step.to_string();
        self.client
            .generate(request, within, &[("x-rollout-id", step.as_str())])
            .await
    }

    /// Aborts one request by its id; one that nobody knows is already over.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn abort(&self, rid: &str) -> Result<(), ClientError> {
        match self.client.abort(Some(rid)).await {
            Err(error) if error.status() == Some(404) => Ok(()),
            other => other,
        }
    }

    /// Creates a session.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn create(&self, session: &CreateSession) -> Result<CreatedSession, ClientError> {
        let body = encode(session);
        self.client
            .call(Method::POST, "/sessions", Some(&body))
            .await
    }

    /// Collects the samples of a session: one per mergeable run.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn samples(
        &self,
        id: &str,
        max_seq_len: Option<i64>,
        within: Duration,
    ) -> Result<Collected, ClientError> {
        let path = format!("/sessions/{id}/samples");
        let body = json!({ "max_seq_len": max_seq_len, "split": true });
        let bytes = self
            .client
            .send_within(Method::POST, &path, Some(&body), within, &[])
            .await?;
        rollout_session::codec::decode(&bytes).map_err(|error| ClientError::BadReply {
            url: format!("{}{path}", self.url()),
            problem: error.to_string(),
        })
    }

    /// Deletes a session; one that is gone is fine.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete(&self, id: &str) -> Result<(), ClientError> {
        delete(&self.client, id).await
    }

    /// The same, tried once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_once(&self, id: &str) -> Result<(), ClientError> {
        delete(&self.once, id).await
    }

    /// Whether the router answers at all within this time.
    pub async fn is_alive(&self, within: Duration) -> bool {
        let asked = self
            .once
            .send_within(Method::GET, "/health", None, within, &[]);
        asked.await.is_ok()
    }

    /// Outcomes of sessions after `after`; waits up to `wait` for the first one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn outcomes(&self, after: u64, wait: Duration) -> Result<OutcomePage, ClientError> {
        let path = format!(
            "/outcomes?job={}&after={after}&wait_seconds={}",
            self.job,
            wait.as_secs()
        );
        let within = wait + Duration::from_secs(10);
        let bytes = self
            .client
            .send_within(Method::GET, &path, None, within, &[])
            .await?;
        decode(&format!("{}{path}", self.url()), &bytes)
    }

    /// Closes admission for the job and aborts what is in flight, until nothing is left or `within` is over. With `agents` the launchers of
    /// its sessions are told to abort too, as [`RouterClient::agent_abort`] does, before the first request is aborted. Tried once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn fence(
        &self,
        agents: Option<&AgentAbort<'_>>,
        within: Duration,
    ) -> Result<FenceAnswer, ClientError> {
        let patience = within
            .saturating_sub(Duration::from_secs(1))
            .max(within / 4);
        let mut body = json!({ "job": self.job, "deadline_seconds": patience.as_secs_f64() });
        if let Some(agents) = agents {
            body["agent_abort"] = agents.terms();
        }
        let bytes = self
            .once
            .send_within(Method::POST, "/fence", Some(&body), within, &[])
            .await?;
        decode(&format!("{}/fence", self.url()), &bytes)
    }

    /// Opens admission for the job.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn reopen(&self) -> Result<(), ClientError> {
        let body = json!({ "job": self.job });
        self.client
            .send(Method::DELETE, "/fence", Some(&body))
            .await
            .map(drop)
    }

    /// Has the launchers call the agents' `abort` hook and end their sessions once the drain is over. Returns when every session has
    /// ended. Tried once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn agent_abort(
        &self,
        agents: &AgentAbort<'_>,
        within: Duration,
    ) -> Result<AbortAnswer, ClientError> {
        let mut body = agents.terms();
        body["job"] = json!(self.job);
        let bytes = self
            .once
            .send_within(Method::POST, "/agent-abort", Some(&body), within, &[])
            .await?;
        decode(&format!("{}/agent-abort", self.url()), &bytes)
    }

    /// What agents the job wants. Tried once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn demand(&self) -> Result<Demand, ClientError> {
        let path = format!("/demand?job={}", self.job);
        self.once.call(Method::GET, &path, None).await
    }

    /// Says that a pod is gone; `pod` is the body. Tried once: whoever says it says it again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn pod_ended(&self, pod: &Value) -> Result<Value, ClientError> {
        self.once.call(Method::POST, "/pod-ended", Some(pod)).await
    }

    /// The router's state.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<RouterStatus, ClientError> {
        self.client.call(Method::GET, "/status", None).await
    }
}

async fn delete(client: &Client, id: &str) -> Result<(), ClientError> {
    let path = format!("/sessions/{id}");
    match client.send(Method::DELETE, &path, None).await {
        Err(error) if error.status() == Some(404) => Ok(()),
        other => other.map(drop),
    }
}

fn encode(session: &CreateSession) -> Value {
    serde_json::to_value(session).unwrap_or_default()
}

fn decode<T: serde::de::DeserializeOwned>(url: &str, bytes: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(bytes).map_err(|error| ClientError::BadReply {
        url: url.to_owned(),
        problem: error.to_string(),
    })
}
