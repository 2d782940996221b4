//! The launcher: claims sessions from the router and has the shim run them.
//!
//! Inputs: the router's agents' port, the pod's claim token, and the directory of `launcher.sock`. It holds no user code and no
//! session data beyond the sessions that run.
//!
//! Guarantees: a session that was claimed gets exactly one result posted, unless the router is gone for good; every session ends by its
//! deadline plus the grace time; the abort hook runs once per process and abort; when the pod is told to end, all of that fits in half
//! its grace period.

mod hooks;
mod life;
mod link;
mod outcome;
mod router;
mod session;
mod stop;
mod word;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{
    hooks::Hooks,
    link::{Link, ShimState},
    router::{Claim, Claimed, Purpose, Router},
    session::Pod,
    stop::StopPlan,
    word::PodWord,
};
pub use self::{router::RouterError, word::Surroundings};
use crate::wire::{AgentKind, Ended, Fault, LoadFailure};

/// How long a claim waits at the router.
const CLAIM_WAIT: Duration = Duration::from_secs(20);

/// First and longest pause between failed claims.
const CLAIM_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// How long a session is waited for, to report on it that the agent cannot be loaded.
const REPORT_PATIENCE: Duration = Duration::from_mins(1);

/// What a launcher is started with.
#[derive(Debug, Clone)]
pub struct LauncherConfig {
    /// The router's agents' port, `http://host:port`.
    pub router: String,
    /// The pod's claim token.
    pub claim_token: String,
    /// Where `launcher.sock` is.
    pub directory: PathBuf,
    /// Sessions at once.
    pub concurrent: usize,
    /// Sessions in all; 0: no limit.
    pub sessions_per_pod: usize,
    /// How long a cancelled agent may take to end by itself.
    pub cancel_grace: Duration,
    /// The pod's grace period; everything fits in half of it.
    pub grace_period: Duration,
    /// How long the agent may take to be loaded.
    pub load_timeout: Duration,
    /// How long the shim may be away.
    pub shim_timeout: Duration,
    /// How long the router may be away between sessions.
    pub router_timeout: Duration,
    /// How long an end that may be the pod's waits for the word of whoever watches it; zero: nobody does.
    pub pod_word: Duration,
    /// What the agent works in.
    pub surroundings: Surroundings,
}

impl LauncherConfig {
    /// The defaults.
    pub fn new(
        router: impl Into<String>,
        claim_token: impl Into<String>,
        directory: impl Into<PathBuf>,
    ) -> Self {
        Self {
            router: router.into(),
            claim_token: claim_token.into(),
            directory: directory.into(),
            concurrent: 1,
            sessions_per_pod: 1,
            cancel_grace: Duration::from_millis(500),
            grace_period: Duration::from_secs(30),
            load_timeout: Duration::from_mins(10),
            shim_timeout: Duration::from_hours(1),
            router_timeout: Duration::from_mins(5),
            pod_word: Duration::ZERO,
            surroundings: Surroundings::Own,
        }
    }
}

/// Why a launcher ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LauncherEnd {
    /// The router has no more work.
    Closed,
    /// The pod ran as many sessions as it may.
    UsedUp,
    /// It was told to end.
    Stopped,
}

/// Why a launcher ended badly.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// The socket cannot be made.
    #[error("cannot listen in {directory}", directory = directory.display())]
    Listen {
        /// The directory.
        directory: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The agent cannot be loaded.
    #[error("the agent cannot be loaded: {}", .0.error)]
    AgentFailed(LoadFailure),
    /// The shim stayed away.
    #[error("no shim has connected for {} s", .0.as_secs())]
    ShimMissing(Duration),
    /// A process of a session could not be ended.
    #[error("a session left a process behind that cannot be ended; the pod runs no other session")]
    Dirty,
    /// The router refused a claim, or was away for too long.
    #[error("no session can be claimed")]
    Claim(#[source] RouterError),
}

/// Claims and runs sessions until there is no more work, or `stop`.
///
/// # Errors
/// See [`LauncherError`]. Sessions that run are ended and reported in every case.
pub async fn run(
    config: LauncherConfig,
    stop: CancellationToken,
) -> Result<LauncherEnd, LauncherError> {
    let stop = stop.child_token();
    let listen_error = |source| LauncherError::Listen {
        directory: config.directory.clone(),
        source,
    };
    let (link, listener) = Link::listen(&config.directory, stop.clone()).map_err(listen_error)?;
    let mut accepting = JoinSet::new();
    accepting.spawn(link.clone().accept(listener));
    let stop_plan = StopPlan::new(config.grace_period, config.cancel_grace);
    let pod = Arc::new(Pod {
        router: Router::new(&config.router, config.claim_token.clone())
            .map_err(LauncherError::Claim)?,
        link: link.clone(),
        hooks: Hooks::new(link.clone()),
        stop: stop.clone(),
        stop_plan,
        own_abort_id: random_id(),
        grace: config.cancel_grace,
        result_patience: Duration::from_mins(1),
        word: PodWord {
            patience: config.pod_word,
            surroundings: config.surroundings,
            at_the_end: stop_plan.hook,
        },
    });
    let launcher = Arc::new(Launcher {
        pod,
        tickets: Mutex::new(config.sessions_per_pod),
        no_more: stop.child_token(),
        config,
    });
    let end = launcher.claim_all().await;
    link.exit(launcher.pod.stop_plan.shim).await;
    end
}

#[derive(Debug)]
struct Launcher {
    pod: Arc<Pod>,
    config: LauncherConfig,
    /// Sessions that may still be claimed, when there is a limit.
    tickets: Mutex<usize>,
    /// Cancelled when nothing more is to be claimed.
    no_more: CancellationToken,
}

impl Launcher {
    async fn claim_all(self: &Arc<Self>) -> Result<LauncherEnd, LauncherError> {
        let mut claims = JoinSet::new();
        for _ in 0..self.config.concurrent.max(1) {
            let launcher = Arc::clone(self);
            claims.spawn(async move { launcher.claim_in_turn().await });
        }
        let mut end = Ok(LauncherEnd::UsedUp);
        while let Some(ended) = claims.join_next().await {
            match ended {
                Ok(Ok(LauncherEnd::UsedUp)) | Err(_) => {}
                Ok(Ok(other)) if end.is_ok() => end = Ok(other),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    self.no_more.cancel();
                    if end.is_ok() {
                        end = Err(error);
                    }
                }
            }
        }
        end
    }

    /// One claim after the other, each with its session.
    async fn claim_in_turn(&self) -> Result<LauncherEnd, LauncherError> {
        loop {
            if !self.take_ticket() {
                return Ok(LauncherEnd::UsedUp);
            }
            let ready = tokio::select! {
                () = self.no_more.cancelled() => return Ok(self.ended_early()),
                ready = self.ready() => ready,
            };
            let kind = match ready {
                Ok(kind) => kind,
                Err(error) => {
                    if !self.no_more.is_cancelled() {
                        self.no_more.cancel();
                        self.report(&error).await;
                    }
                    return Err(error);
                }
            };
            let claimed = tokio::select! {
                () = self.no_more.cancelled() => return Ok(self.ended_early()),
                claimed = self.claim(Purpose::Run(kind)) => claimed?,
            };
            let Some(claim) = claimed else {
                return Ok(LauncherEnd::Closed);
            };
            if !session::run(&self.pod, claim).await {
                return Err(LauncherError::Dirty);
            }
        }
    }

    fn ended_early(&self) -> LauncherEnd {
        if self.pod.stop.is_cancelled() {
            LauncherEnd::Stopped
        } else {
            LauncherEnd::UsedUp
        }
    }

    fn take_ticket(&self) -> bool {
        if self.config.sessions_per_pod == 0 {
            return true;
        }
        let mut tickets = self.tickets.lock();
        let left = tickets.checked_sub(1);
        *tickets = left.unwrap_or(0);
        left.is_some()
    }

    /// Waits until the shim can run a session.
    async fn ready(&self) -> Result<AgentKind, LauncherError> {
        let mut state = self.pod.link.state();
        loop {
            let now = state.borrow_and_update().clone();
            let limit = match now {
                ShimState::Ready(kind) => return Ok(kind),
                ShimState::Failed(failure) => return Err(LauncherError::AgentFailed(failure)),
                ShimState::Absent => self.config.shim_timeout,
                ShimState::Loading => self.config.load_timeout,
            };
            if timeout(limit, state.changed()).await.is_err() {
                return Err(match now {
                    ShimState::Loading => LauncherError::AgentFailed(LoadFailure::unexplained(
                        format!("it was not loaded within {} s", limit.as_secs()),
                    )),
                    _ => LauncherError::ShimMissing(limit),
                });
            }
        }
    }

    /// Waits for a session; `None` when there will be none.
    async fn claim(&self, purpose: Purpose) -> Result<Option<Claim>, LauncherError> {
        let claim_id = random_id();
        let mut pause = CLAIM_PAUSES.0;
        let mut heard = Instant::now();
        loop {
            let asked = Instant::now();
            match self.pod.router.claim(&claim_id, purpose, CLAIM_WAIT).await {
                Ok(Claimed::Session(claim)) => return Ok(Some(*claim)),
                Ok(Claimed::Closed) => return Ok(None),
                Ok(Claimed::Nothing) => {
                    heard = Instant::now();
                    pause = CLAIM_PAUSES.0;
                    if asked.elapsed() < CLAIM_PAUSES.1 {
                        sleep(CLAIM_PAUSES.1).await;
                    }
                }
                Err(error)
                    if error.is_transient() && heard.elapsed() < self.config.router_timeout =>
                {
                    tracing::warn!(%error, "a claim failed");
                    sleep(pause).await;
                    pause = (pause * 2).min(CLAIM_PAUSES.1);
                }
                Err(error) => return Err(LauncherError::Claim(error)),
            }
        }
    }

    /// Says on one session why the agent cannot run, so that the job learns it.
    async fn report(&self, error: &LauncherError) {
        let claim = self.claim(Purpose::Report);
        let Ok(Ok(Some(claim))) = timeout(REPORT_PATIENCE, claim).await else {
            return;
        };
        let failure = LoadFailure {
            error: error.to_string(),
            fault: match error {
                LauncherError::AgentFailed(failure) => failure.fault,
                _ => Fault::Infra,
            },
        };
        let ended = Ended::load_failed(&claim.session_id, &failure);
        let result = outcome::result(None, ended, 0.0, None);
        session::post(&self.pod, &claim.session_id, &result).await;
    }
}

/// 32 random hex digits.
fn random_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::ANSWER_TIMEOUT;

    /// `life_tests.rs` shows that it is cancelled at the drain's end to the moment.
    #[test]
    fn an_agent_that_ignores_its_cancellation_is_gone_within_a_second() {
        let grace = LauncherConfig::new("", "", "").cancel_grace;
        assert!(grace + ANSWER_TIMEOUT < Duration::from_secs(1));
    }
}
