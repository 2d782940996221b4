//! The router as a value: begins and ends what runs in it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Config;
use crate::engines::{EngineUrlError, LookupTimes};
use crate::flights::FenceScope;
use crate::id::HexId;
use crate::route::Listener;
use crate::service::Service;
use crate::state::Inner;
use crate::{engines, expiry};

/// Between two looks at what is in flight, while the router leaves.
const LEAVE_LOOK: Duration = Duration::from_millis(100);

/// A router: sessions, engines, and the two services that reach them.
#[derive(Debug, Clone)]
pub struct Router {
    inner: Arc<Inner>,
}

impl Router {
    /// Builds a router. Must be called within a tokio runtime: it finds and probes the engines in the background until it is stopped.
    ///
    /// # Errors
    /// An engine URL that cannot be used, or no engine at all.
    pub fn new(config: Config) -> Result<Self, EngineUrlError> {
        let inner = Arc::new(Inner::new(config)?);
        let router = Self { inner };
        router.start_background_work();
        Ok(router)
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

    /// Serves on until nothing was in flight for `quiet`, or until `limit` is over. Whoever serves it stops it after that.
    ///
    /// `quiet` is how long others still send clients here: the list of a service's addresses takes a moment to reach everybody.
    pub async fn leave(&self, quiet: Duration, limit: Duration) {
        let inner = &self.inner;
        inner.leaving.begin();
        let end = Instant::now() + limit;
        let mut quiet_since = Instant::now();
        while Instant::now() < end && quiet_since.elapsed() < quiet {
            tokio::time::sleep(LEAVE_LOOK.min(quiet)).await;
            if inner.flights.len() > 0 {
                quiet_since = Instant::now();
            }
        }
        tracing::info!(in_flight = inner.flights.len(), "left");
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

impl Router {
    fn start_background_work(&self) {
        let inner = &self.inner;
        let stopping = inner.stopping.clone();
        let engines = Arc::clone(&inner.engines);
        let probes = engines::run_probes(engines, inner.upstream.clone());
        inner.tasks.spawn(async move {
            stopping.run_until_cancelled(probes).await;
        });
        let stopping = inner.stopping.clone();
        let engines = Arc::clone(&inner.engines);
        let lookups = inner.metrics.engine_lookups();
        let times = LookupTimes {
            period: inner.config.times.lookup,
            limit: inner.config.times.control_call,
        };
        let discovery = engines::run_discovery(engines, times, lookups);
        inner.tasks.spawn(async move {
            stopping.run_until_cancelled(discovery).await;
        });
        if let Some(port) = inner.config.engine_state_port {
            let stopping = inner.stopping.clone();
            let engines = Arc::clone(&inner.engines);
            let states = engines::run_states(engines, inner.upstream.clone(), port);
            inner.tasks.spawn(async move {
                stopping.run_until_cancelled(states).await;
            });
        }
        let stopping = inner.stopping.clone();
        let shared = Arc::downgrade(inner);
        inner.tasks.spawn(async move {
            stopping.run_until_cancelled(expiry::run(shared)).await;
        });
    }
}
