//! What the supervisor asks the router's control port (docs/protocol.md section 1): the demand for agent pods, and that a pod is gone.

use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

/// Deadline of one call.
const CALL: Duration = Duration::from_secs(5);

/// Tries to say that a pod is gone, and the pause between them: a router that restarts in place is back by then.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// Sessions of a job that want an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Demand {
    /// In the queue.
    pub(super) waiting: u32,
    /// Held by a launcher.
    pub(super) assigned: u32,
    /// Launchers that ask for one.
    pub(super) idle_claims: u32,
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    #[error("the router did not take POST /pod-ended")]
    NotSent(#[source] reqwest::Error),
    #[error("the router answered POST /pod-ended with {status}: {body}")]
    Refused { status: StatusCode, body: String },
}

/// The control port, for one job.
#[derive(Debug, Clone)]
pub(super) struct Control {
    client: reqwest::Client,
    url: String,
    token: String,
    job: String,
}

impl Control {
    pub(super) fn new(url: &str, token: &str, job: &str) -> reqwest::Result<Self> {
        Ok(Self {
            client: reqwest::Client::builder()
                .no_proxy()
                .timeout(CALL)
                .build()?,
            url: url.trim_end_matches('/').to_owned(),
            token: token.to_owned(),
            job: job.to_owned(),
        })
    }

    /// How many sessions want an agent; `None` while the router does not say.
    pub(super) async fn demand(&self) -> Option<Demand> {
        let request = self
            .client
            .get(format!("{}/demand", self.url))
            .query(&[("job", &self.job)])
            .bearer_auth(&self.token);
        match request.send().await {
            Ok(response) => response.error_for_status().ok()?.json().await.ok(),
            Err(error) => {
                tracing::debug!(%error, "the router did not tell its demand");
                None
            }
        }
    }

    /// Says that a pod is gone: its sessions end now and not when their heartbeats are missed. Safe to repeat.
    pub(super) async fn pod_ended(
        &self,
        slot: u32,
        generation: u32,
        reason: &str,
    ) -> Result<(), ControlError> {
        let body =
            json!({"job": self.job, "slot": slot, "generation": generation, "reason": reason});
        let mut tries = 1;
        loop {
            let request = self
                .client
                .post(format!("{}/pod-ended", self.url))
                .bearer_auth(&self.token)
                .json(&body);
            match request.send().await {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => {
                    let status = response.status();
                    let body = response.text().await.unwrap_or_default();
                    return Err(ControlError::Refused { status, body });
                }
                Err(error) if tries == TRIES => return Err(ControlError::NotSent(error)),
                Err(_) => sleep(PAUSE).await,
            }
            tries += 1;
        }
    }
}
