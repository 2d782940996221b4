//! What all parts of a router share: they take it, and it knows none of them.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use http::HeaderMap;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::abort::Aborter;
use crate::auth;
use crate::config::Config;
use crate::engines::{EngineUrlError, Engines, Upstream};
use crate::error::ApiError;
use crate::flights::Flights;
use crate::headers;
use crate::id::HexId;
use crate::jobs::Jobs;
use crate::last_call::LastCall;
use crate::leave::Leaving;
use crate::metrics::Metrics;
use crate::session::Sessions;

/// Shared state.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) instance: HexId,
    token_secret: HexId,
    pub(crate) engines: Arc<Engines>,
    pub(crate) upstream: Upstream,
    pub(crate) flights: Arc<Flights>,
    pub(crate) aborter: Aborter,
    pub(crate) sessions: Sessions,
    pub(crate) jobs: Jobs,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    pub(crate) stopping: CancellationToken,
    pub(crate) leaving: Leaving,
    pub(crate) last_call: Arc<LastCall>,
    advertised: OnceLock<String>,
    /// Whether it has been said that `logprob_start_len` is removed.
    pub(crate) warned_logprob_start: AtomicBool,
}

impl Inner {
    /// Nothing runs yet.
    pub(crate) fn new(config: Config) -> Result<Self, EngineUrlError> {
        let engines = Arc::new(Engines::new(&config)?);
        let upstream = Upstream::new(&config);
        let flights = Arc::new(Flights::default());
        let tasks = TaskTracker::new();
        let stopping = CancellationToken::new();
        let last_call = Arc::new(LastCall::default());
        let aborter = Aborter {
            upstream: upstream.clone(),
            flights: Arc::clone(&flights),
            tasks: tasks.clone(),
            stopping: stopping.clone(),
            last_call: Arc::clone(&last_call),
            repeat: config.times.abort_repeat,
            orphan: config.times.orphan,
        };
        let advertised = OnceLock::new();
        if let Some(url) = &config.advertise_url {
            let _ = advertised.set(url.trim_end_matches('/').to_owned());
        }
        Ok(Self {
            instance: HexId::random(),
            token_secret: HexId::random(),
            sessions: Sessions::new(config.limits),
            jobs: Jobs::default(),
            metrics: Metrics::new(),
            stopping,
            leaving: Leaving::default(),
            last_call,
            advertised,
            warned_logprob_start: AtomicBool::new(false),
            engines,
            upstream,
            flights,
            aborter,
            tasks,
            config,
        })
    }

    /// What agents put before `/sessions/<id>`.
    pub(crate) fn advertised_url(&self) -> &str {
        self.advertised.get().map_or("http://127.0.0.1", |url| url)
    }

    pub(crate) fn advertise(&self, url: String) {
        let _ = self.advertised.set(url);
    }

    pub(crate) fn base_url(&self, session: &HexId) -> String {
        format!("{}/sessions/{}", self.advertised_url(), session.as_str())
    }

    pub(crate) fn session_token(&self, session: &HexId) -> String {
        auth::session_token(&self.token_secret, session)
    }

    /// The session's id is the capability; its token only counts when the configuration says so.
    pub(crate) fn check_session_token(
        &self,
        session: &HexId,
        headers: &HeaderMap,
    ) -> Result<(), ApiError> {
        if !self.config.require_session_token {
            return Ok(());
        }
        let expected = self.session_token(session);
        let given = headers::bearer(headers).unwrap_or_default();
        if auth::same_secret(given, &expected) {
            Ok(())
        } else {
            Err(ApiError::Unauthorized(
                "the session's token is missing or wrong",
            ))
        }
    }

    /// Checks the bearer of the control port.
    pub(crate) fn check_control_token(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let Some(expected) = &self.config.control_token else {
            return Ok(());
        };
        let given = headers::bearer(headers).unwrap_or_default();
        if auth::same_secret(given, expected) {
            Ok(())
        } else {
            Err(ApiError::Unauthorized(
                "the control token is missing or wrong",
            ))
        }
    }
}
