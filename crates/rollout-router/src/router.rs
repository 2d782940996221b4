//! The router as a value.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::abort::Aborter;
use crate::auth;
use crate::config::Config;
use crate::engines::{EngineUrlError, Engines, LookupTimes, Upstream};
use crate::error::ApiError;
use crate::flights::{FenceScope, Flights};
use crate::headers;
use crate::id::HexId;
use crate::jobs::Jobs;
use crate::last_call::LastCall;
use crate::leave::Leaving;
use crate::metrics::Metrics;
use crate::route::Listener;
use crate::service::Service;
use crate::session::Sessions;
use crate::{engines, expiry};

/// A router: sessions, engines, and the two services that reach them.
#[derive(Debug, Clone)]
pub struct Router {
    inner: Arc<Inner>,
}

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

impl Router {
    /// Builds a router. Must be called within a tokio runtime: it finds and probes the engines in the background until it is stopped.
    ///
    /// # Errors
    /// An engine URL that cannot be used, or no engine at all.
    pub fn new(config: Config) -> Result<Self, EngineUrlError> {
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
        let inner = Arc::new(Inner {
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
        });
        inner.start_background_work();
        Ok(Self { inner })
    }

    /// What agents and launchers reach.
    pub fn agents_service(&self) -> Service {
        Service::new(Arc::clone(&self.inner), Listener::Agents)
    }

    /// What driver, controller and people reach; everything of the agents' service too.
    pub fn control_service(&self) -> Service {
        Service::new(Arc::clone(&self.inner), Listener::Control)
    }

    /// Changes with every start: sessions do not outlive it.
    pub fn instance_id(&self) -> HexId {
        self.inner.instance
    }

    /// Ends everything within the shutdown time: no new work, what is in flight is aborted at the engines, who waits is answered.
    pub async fn stop(&self) {
        let begun = Instant::now();
        self.end_work(begun).await;
        self.end_rest(begun).await;
    }

    /// The first three quarters of the shutdown time: fences, aborts, and lets everything be answered.
    pub(crate) async fn end_work(&self, begun: Instant) {
        let inner = &self.inner;
        let shutdown = inner.config.times.shutdown;
        inner.stopping.cancel();
        let (_, sent) = inner.flights.fence(FenceScope::All);
        for (_, job) in inner.jobs.all() {
            job.work.notify_waiters();
            job.news.notify_waiters();
        }
        let aborted = inner.aborter.abort_until_ended(sent, shutdown / 2).await;
        for report in aborted {
            tracing::info!(
                engine = report.url,
                aborted = report.aborted,
                left = report.left,
                unproven = report.unproven,
                "stopped"
            );
        }
        let last_call = &inner.last_call;
        last_call
            .answered(begun + shutdown / 2, begun + shutdown / 4 * 3)
            .await;
    }

    /// The rest of the time: what still waits is told that it waits in vain.
    pub(crate) async fn end_rest(&self, begun: Instant) {
        let inner = &self.inner;
        inner.last_call.close();
        inner.tasks.close();
        let end = begun + inner.config.times.shutdown;
        let _ = tokio::time::timeout_at(end, inner.tasks.wait()).await;
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    fn start_background_work(self: &Arc<Self>) {
        let stopping = self.stopping.clone();
        let engines = Arc::clone(&self.engines);
        let probes = engines::run_probes(engines, self.upstream.clone());
        self.tasks.spawn(async move {
            stopping.run_until_cancelled(probes).await;
        });
        let stopping = self.stopping.clone();
        let engines = Arc::clone(&self.engines);
        let lookups = self.metrics.engine_lookups();
        let times = LookupTimes {
            period: self.config.times.lookup,
            limit: self.config.times.control_call,
        };
        let discovery = engines::run_discovery(engines, times, lookups);
        self.tasks.spawn(async move {
            stopping.run_until_cancelled(discovery).await;
        });
        if let Some(port) = self.config.engine_state_port {
            let stopping = self.stopping.clone();
            let engines = Arc::clone(&self.engines);
            let states = engines::run_states(engines, self.upstream.clone(), port);
            self.tasks.spawn(async move {
                stopping.run_until_cancelled(states).await;
            });
        }
        let stopping = self.stopping.clone();
        let inner = Arc::downgrade(self);
        self.tasks.spawn(async move {
            stopping.run_until_cancelled(expiry::run(inner)).await;
        });
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

/// The time of day, for records.
pub(crate) fn unix_seconds() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |elapsed| elapsed.as_secs_f64())
}
