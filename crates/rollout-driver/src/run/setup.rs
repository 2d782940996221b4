//! From open files to a shell that can begin: the router answers, leftovers are closed, everything is built.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rollout_engine::{Engine, LadderConfig, Rung};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::deadlines::Deadlines;
use super::filter::GroupFilter;
use super::parts::{Parts, climber, generate_fn, plugin_args, rewards};
use super::rebuild::rebuild;
use super::report::Report;
use super::rungs::{Climber, delete_all};
use super::scoring::Scorer;
use crate::config::{DriverConfig, engine_config, seconds};
use crate::dataset::Dataset;
use crate::error::DriverError;
use crate::generate::{GenerateFn, PromptMaker};
use crate::ledger::{Ledger, Recovered};
use crate::output::Writer;
use crate::plugins::PluginClient;
use crate::router::{EngineServiceState, OutcomeFeed, RouterClient, RouterStatus};
use crate::status::Board;

/// Plug-in calls at once.
const PLUGIN_CALLS: usize = 64;

/// Rewards at once.
const REWARD_WORKERS: usize = 64;

/// What was opened before the router is needed.
pub(super) struct Opened {
    pub(super) config: Arc<DriverConfig>,
    pub(super) dataset: Arc<Dataset>,
    pub(super) output: Arc<Writer>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) recovered: Recovered,
    pub(super) reports: mpsc::UnboundedSender<Report>,
    pub(super) board: Board,
    pub(super) router: RouterClient,
}

/// Everything that a shell needs.
pub(super) struct Setup {
    pub(super) config: Arc<DriverConfig>,
    pub(super) engine: Engine,
    pub(super) dataset: Arc<Dataset>,
    pub(super) output: Arc<Writer>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) reports: mpsc::UnboundedSender<Report>,
    pub(super) board: Board,
    pub(super) prompts: PromptMaker,
    pub(super) generate: Arc<GenerateFn>,
    pub(super) feed: OutcomeFeed,
    pub(super) scorer: Scorer,
    pub(super) filter: Arc<GroupFilter>,
    pub(super) climber: Climber,
    pub(super) deadlines: Deadlines,
}

impl Opened {
    pub(super) async fn connect(self) -> Result<Setup, DriverError> {
        let Self {
            config,
            dataset,
            output,
            ledger,
            recovered,
            reports,
            board,
            router,
        } = self;
        let timeouts = &config.timeouts;
        let Recovered {
            mut book,
            resumed,
            sessions,
            age,
        } = recovered;
        if !resumed {
            book = rebuild(Arc::clone(&output), Arc::clone(&ledger), &config).await?;
        }
        let deadlines = Deadlines::of(&config.spec, age, Instant::now());
        let until = deadlines.while_waiting(&book);
        let patience = seconds(timeouts.router_seconds);
        let status = wait_for_router(&router, patience, until, &board).await?;
        let client = config
            .plugin_socket
            .as_ref()
            .map(|socket| Arc::new(PluginClient::new(socket, PLUGIN_CALLS)));
        let rewards = rewards(&config, client.as_ref())?;
        rewards
            .prepare()
            .await
            .map_err(|error| plugin_error("spec.reward", error.is_unusable(), error.to_string()))?;
        let filter = GroupFilter::new(
            config.spec.rollout.filter.as_ref(),
            client.as_ref(),
            plugin_args(&config),
            seconds(timeouts.filter_seconds),
        )?;
        filter.prepare().await.map_err(|error| {
            plugin_error(
                "spec.rollout.filter",
                error.is_unusable(),
                error.to_string(),
            )
        })?;
        let engines = u32::try_from(status.engines.len())
            .unwrap_or(u32::MAX)
            .max(1);
        let limits = engine_config(&config, dataset.rows(), engines);
        let open_sessions = Arc::new(Mutex::new(BTreeSet::new()));
        let feed = OutcomeFeed::default();
        feed.begin_with(status.session_server_instance_id);
        let generate = generate_fn(&Parts {
            config: &config,
            router: &router,
            feed: &feed,
            ledger: &ledger,
            sessions: &open_sessions,
            in_flight: limits.max_in_flight,
        });
        let climber = climber(&config, router, &feed, open_sessions);
        let leftovers = Climber {
            drain: Duration::ZERO,
            ..climber.clone()
        };
        if resumed {
            end_leftovers(&leftovers, book.step.0, &limits.ladder).await;
        }
        delete_leftovers(&climber.router, sessions).await;
        Ok(Setup {
            prompts: PromptMaker::new(config.tokenizer.as_ref(), &config.spec.dataset)?,
            generate: Arc::new(generate),
            engine: Engine::resume(limits, book),
            scorer: Scorer {
                rewards: Arc::new(rewards),
                permits: Arc::new(Semaphore::new(REWARD_WORKERS)),
                within: seconds(timeouts.reward_seconds),
            },
            filter: Arc::new(filter),
            config,
            dataset,
            output,
            ledger,
            reports,
            board,
            feed,
            climber,
            deadlines,
        })
    }
}

/// A function that cannot be called is the spec's fault; a host that does not answer may be started again.
fn plugin_error(field: &'static str, is_unusable: bool, problem: String) -> DriverError {
    if is_unusable {
        DriverError::Config {
            problem: format!("{field}: {problem}"),
        }
    } else {
        DriverError::Plugin { field, problem }
    }
}

/// Ends what an earlier process left in flight: its samples will be taken again. Agents are told as in a teardown, so that their
/// backends can let go.
async fn end_leftovers(climber: &Climber, step: u32, ladder: &LadderConfig) {
    climber.climb(Rung::Fence, step, ladder.fence).await;
    if let Some(within) = ladder.hook {
        climber.climb(Rung::Hook, step, within).await;
    }
}

async fn delete_leftovers(router: &RouterClient, sessions: Vec<String>) {
    let deleting = delete_all(sessions, |session| async move {
        let deleted = router.delete(&session).await;
        deleted.map_err(|error| error.to_string())
    });
    let left = deleting.await;
    if left.count > 0 {
        tracing::warn!(?left, "sessions of an earlier process were not deleted");
    }
}

/// Waits for a router that knows engines: how many there are bounds what is in flight.
///
/// A router that does not answer is given `patience`. Engines that are away are nobody's failure: they are waited for until one of the job's
/// own deadlines, which then ends the job. What is missing is shown after `patience`: engines that start with the job need a moment.
async fn wait_for_router(
    router: &RouterClient,
    patience: Duration,
    until: Option<Instant>,
    board: &Board,
) -> Result<RouterStatus, DriverError> {
    const PAUSE: Duration = Duration::from_millis(100);
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);
    let began = Instant::now();
    let (mut answered, mut pause, mut shown) = (began, PAUSE, None);
    loop {
        match router.status().await {
            Ok(status) if !status.engines.is_empty() => return Ok(status),
            Ok(status) if until.is_some_and(|until| Instant::now() >= until) => return Ok(status),
            Ok(status) => {
                answered = Instant::now();
                pause = (pause * 2).min(LONGEST_PAUSE);
                let problem = no_engine(status.engine_service);
                if began.elapsed() >= patience && shown.as_ref() != Some(&problem) {
                    tracing::warn!(problem, "the router is asked until it knows an engine");
                    board.waits_for_engines(&problem);
                    shown = Some(problem);
                }
            }
            Err(error) if answered.elapsed() >= patience => {
                return Err(DriverError::Router {
                    url: router.url().to_owned(),
                    problem: format!("it does not answer: {error}"),
                });
            }
            Err(_) => pause = PAUSE,
        }
        tokio::time::sleep(pause).await;
    }
}

fn no_engine(service: Option<EngineServiceState>) -> String {
    let why = service.map(|service| match service.error {
        Some(error) => error,
        None => format!("{} has not been looked up", service.name),
    });
    format!("it knows no engine: {}", why.unwrap_or_default())
}
