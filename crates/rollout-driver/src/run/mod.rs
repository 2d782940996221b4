//! One run of the driver: from a configuration to a decided job, or to an interruption.
//!
//! [`Driver::start`] opens what has to be there (data set, output, ledger, status server); [`Driver::run`] waits for the router,
//! closes what an earlier process left open, and interprets the batch loop until it ends.

mod acts;
mod data_set;
mod deadlines;
mod filter;
mod intake;
mod parts;
mod patience;
mod rebuild;
mod report;
mod rows;
mod rungs;
mod scoring;
mod settling;
mod setup;
mod shell;
mod show;
mod tally;
mod work;
mod writing;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rollout_engine::{JobResult, Reason, Step};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::{DriverConfig, seconds};
use crate::dataset::Dataset;
use crate::error::{DriverError, LedgerError};
use crate::ledger::{Ledger, Recovered};
use crate::output::{
    JobStamp, OutputConfig, OutputError, ResultEntry, RewardInfo, Writer, tokenizer_name,
};
use crate::router::RouterClient;
use crate::status::{Board, LastWord, Server, serve, watch_demand};
use crate::tokenizer_files;

use report::Report;
use shell::Shell;
use writing::write_result;

pub(crate) use tally::Counters;

/// A driver that has opened everything that is its own.
pub struct Driver {
    config: Arc<DriverConfig>,
    dataset: Arc<Dataset>,
    output: Arc<Writer>,
    ledger: Arc<Ledger>,
    recovered: Recovered,
    reports: (
        mpsc::UnboundedSender<Report>,
        mpsc::UnboundedReceiver<Report>,
    ),
    board: Board,
    router: RouterClient,
    listener: TcpListener,
    address: SocketAddr,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// Opens data set, output, ledger and the status server's socket, and fetches the tokenizer where the engines have it.
    ///
    /// # Errors
    /// One of them cannot be used: see [`DriverError`]. That is then the last word.
    pub async fn start(config: DriverConfig) -> Result<Self, DriverError> {
        Self::start_until(config, &CancellationToken::new()).await
    }

    /// As [`Driver::start`]; waits for nobody once `stop` is cancelled. [`Driver::run`] then says that the run was interrupted.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub async fn start_until(
        config: DriverConfig,
        stop: &CancellationToken,
    ) -> Result<Self, DriverError> {
        let board = Board::new(config.job.attempt);
        let (message, output) = (
            config.termination_message_path.clone(),
            config.output_dir.clone(),
        );
        let started = Self::open(config, stop, board.clone()).await;
        let word = match &started {
            Ok(_) => return started,
            Err(DriverError::Stopped) => {
                let result = Ok(interrupted("the data set was there"));
                LastWord::new(&board, &result, (0, 0), &output)
            }
            Err(error) => LastWord::failed(&board, error, (0, 0), &output),
        };
        say(word, message).await;
        started
    }

    async fn open(
        config: DriverConfig,
        stop: &CancellationToken,
        board: Board,
    ) -> Result<Self, DriverError> {
        let address = config.status_listen.clone();
        let listen = |source| DriverError::Listen {
            address: address.clone(),
            source,
        };
        let listener = TcpListener::bind(&address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let config = data_set::fetch(config, stop).await?;
        let config = Arc::new(tokenizer_files::resolve(config, stop).await?);
        let reports = mpsc::unbounded_channel();
        let (opening, told) = (Arc::clone(&config), reports.0.clone());
        let opened = tokio::task::spawn_blocking(move || open(&opening, told)).await;
        let (dataset, output, ledger, recovered) =
            opened.map_err(|error| DriverError::Task {
                problem: error.to_string(),
            })??;
        let router = RouterClient::new(
            &config.router_url,
            config.control_token.clone(),
            &config.job.name,
            seconds(config.timeouts.router_seconds),
        )
        .map_err(DriverError::Client)?;
        Ok(Self {
            board,
            router,
            config,
            dataset: Arc::new(dataset),
            output: Arc::new(output),
            ledger: Arc::new(ledger),
            recovered,
            reports,
            listener,
            address,
        })
    }

    /// Where the status is.
    pub fn status_url(&self) -> String {
        format!("http://{}/status", self.address)
    }

    /// What the status server shows.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Runs the job to its end, or up the teardown ladder once `stop` is cancelled. The last word is written before this returns.
    ///
    /// # Errors
    /// A failure that no batch loop can handle: the ledger or the output cannot be written, the router never answers. What was kept is
    /// kept; a later start continues.
    pub async fn run(self, stop: CancellationToken) -> Result<JobResult, DriverError> {
        let Self {
            config,
            dataset,
            output,
            ledger,
            recovered,
            reports,
            board,
            router,
            listener,
            address: _,
        } = self;
        let over = CancellationToken::new();
        let server = Server {
            board: board.clone(),
            router: router.clone(),
            control_token: config.control_token.clone(),
        };
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(serve(listener, server, over.clone()));
        if config.spec.generate.agentic.is_some() {
            let watch = watch_demand(router.clone(), board.clone());
            let over = over.clone();
            serving.spawn(async move {
                over.run_until_cancelled_owned(watch).await;
            });
        }
        let files = Arc::clone(&output);
        let outcome = conduct(
            &config, dataset, output, &ledger, recovered, reports, &board, router, stop,
        )
        .await;
        let message = config.termination_message_path.clone();
        let word = LastWord::new(&board, &outcome, files.totals(), &config.output_dir);
        let closed = tokio::task::spawn_blocking(move || drop(ledger)).await;
        if let Err(error) = closed {
            tracing::error!(%error, "the ledger was not closed in order");
        }
        say(word, message).await;
        over.cancel();
        serving.join_all().await;
        outcome
    }
}

/// The result of a driver that was stopped before something had happened.
fn interrupted(before: &str) -> JobResult {
    JobResult {
        reason: Reason::Interrupted,
        message: format!("stopped before {before}"),
        success: false,
    }
}

/// Writes the last word where it is wanted.
async fn say(word: LastWord, message: Option<PathBuf>) {
    let Some(path) = message else { return };
    let written = tokio::task::spawn_blocking(move || word.write(&path)).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, "the termination message was not written");
    }
}

#[expect(
    clippy::too_many_arguments,
    reason = "the parts of a driver, taken apart once"
)]
async fn conduct(
    config: &Arc<DriverConfig>,
    dataset: Arc<Dataset>,
    output: Arc<Writer>,
    ledger: &Arc<Ledger>,
    recovered: Recovered,
    reports: (
        mpsc::UnboundedSender<Report>,
        mpsc::UnboundedReceiver<Report>,
    ),
    board: &Board,
    router: RouterClient,
    stop: CancellationToken,
) -> Result<JobResult, DriverError> {
    if let Some(result) = recovered.book.result.clone() {
        board.decided(&recovered.book, &result, config.spec.rollout.batch_size);
        return decide(config, output, ledger, result).await;
    }
    let files = Arc::clone(&output);
    let opened = setup::Opened {
        config: Arc::clone(config),
        dataset,
        output,
        ledger: Arc::clone(ledger),
        recovered,
        reports: reports.0,
        board: board.clone(),
        router,
    };
    let setup = tokio::select! {
        biased;
        () = stop.cancelled() => {
            return Ok(interrupted("the router answered"));
        }
        setup = opened.connect() => setup?,
    };
    let result = Shell::new(setup).run(reports.1, stop).await?;
    if result.reason == Reason::Interrupted {
        return Ok(result);
    }
    decide(config, files, ledger, result).await
}

/// Writes a decided result into the manifest. The ledger has it already, so that a crash in between is repaired by the next start.
async fn decide(
    config: &DriverConfig,
    output: Arc<Writer>,
    ledger: &Arc<Ledger>,
    result: JobResult,
) -> Result<JobResult, DriverError> {
    let ledger = Arc::clone(ledger);
    let book = tokio::task::spawn_blocking(move || ledger.book()).await;
    let book = book.map_err(|error| DriverError::Task {
        problem: error.to_string(),
    })??;
    let entry = ResultEntry {
        result: result.clone(),
        ledger: book.total(),
    };
    let patience = seconds(config.timeouts.output_seconds);
    write_result(output, entry, patience).await?;
    Ok(result)
}

type OpenedFiles = (Dataset, Writer, Ledger, Recovered);

fn open(
    config: &DriverConfig,
    told: mpsc::UnboundedSender<Report>,
) -> Result<OpenedFiles, DriverError> {
    let dataset = data_set::open(config)?;
    let output = Writer::open(OutputConfig {
        directory: config.output_dir.clone(),
        job: JobStamp {
            name: config.job.name.clone(),
            namespace: config.job.namespace.clone(),
            uid: config.job.uid.clone(),
            attempt: config.job.attempt,
        },
        samples_per_prompt: config.spec.rollout.samples_per_prompt,
        reward: RewardInfo {
            model: config
                .spec
                .reward
                .kind
                .clone()
                .unwrap_or_else(|| "None".into()),
            key: config.spec.reward.key.clone().unwrap_or_default(),
        },
        tokenizer: config.tokenizer.as_ref().map(tokenizer_name),
        include_all: config.spec.output.include_all,
        dataset: config.dataset_digest.clone(),
    })
    .map_err(DriverError::Output)?;
    let (ledger, recovered) = Ledger::open(
        &config.ledger_dir,
        &config.job,
        dataset.fingerprint(),
        move |told_by_writer: Result<u64, LedgerError>| {
            // Nobody listens any more once the run is over.
            drop(told.send(Report::Ledger(told_by_writer)));
        },
    )?;
    restore(&output, &ledger).map_err(DriverError::Output)?;
    Ok((dataset, output, ledger, recovered))
}

/// Writes damaged files of finished steps again where the ledger still has their samples.
fn restore(output: &Writer, ledger: &Ledger) -> Result<(), OutputError> {
    for damage in output.damages()? {
        let groups = ledger.kept(Step(damage.step)).unwrap_or_else(|error| {
            tracing::warn!(%error, "kept groups of the ledger cannot be read");
            Vec::new()
        });
        let rows: Vec<Vec<u8>> = groups.into_iter().map(|group| group.rows).collect();
        let (path, problem) = (damage.path.clone(), damage.problem.clone());
        output.restore(damage, &rows)?;
        tracing::warn!(path = %path.display(), problem, "a file of the output was written again from the ledger");
    }
    Ok(())
}
