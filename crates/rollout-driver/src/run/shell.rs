//! The loop: reports in, events to the batch loop, its commands carried out.

use std::collections::HashMap;
use std::time::Duration;

use rollout_engine::{
    Command, Event, JobResult, Reach, Reason, Record, SampleKey, Step, StopCause, TakeId, Tally,
    TeardownSummary,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::deadlines::{Deadlines, has_generated};
use super::report::Report;
use super::rows::PROMPT_TOO_LONG;
use super::setup::Setup;
use super::tally::Counters;
use super::work::Work;
use super::writing::{Kept, Outbox};
use crate::config::seconds;
use crate::error::{DriverError, LedgerError};
use crate::ledger::Op;

/// Reports that are taken in before the status is brought up to date.
const BURST: usize = 256;

/// How long the ledger may be silent while the last records are awaited.
const LEDGER_PATIENCE: Duration = Duration::from_mins(1);

/// How long the output may be silent at the end of an undecided run.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(5);

/// The interpreter of one batch loop.
pub(super) struct Shell {
    pub(super) setup: Setup,
    pub(super) work: HashMap<TakeId, Work>,
    pub(super) running: HashMap<SampleKey, CancellationToken>,
    pub(super) tasks: JoinSet<()>,
    pub(super) outbox: Outbox,
    pub(super) counters: Counters,
    pub(super) ops: Vec<Op>,
    /// Kept groups of the commands that are being carried out.
    pub(super) kept: Vec<Kept>,
    pub(super) began: Instant,
    pub(super) step_began: Instant,
    pub(super) teardown: TeardownSummary,
    /// The takes of the steps before this one.
    pub(super) earlier: (Step, Tally),
    /// Samples of finished steps.
    pub(super) written: u64,
    /// Whether the router admits the job's work.
    pub(super) admitted: watch::Sender<bool>,
    /// Who still answers.
    pub(super) reach: watch::Sender<Reach>,
    /// Numbers of the last submission to the ledger, and of the last one that is durable.
    submitted: u64,
    pub(super) committed: u64,
    result: Option<JobResult>,
    fatal: Option<DriverError>,
}

impl Shell {
    pub(super) fn new(setup: Setup) -> Self {
        let written = setup.output.totals().1;
        Self {
            setup,
            work: HashMap::new(),
            running: HashMap::new(),
            tasks: JoinSet::new(),
            outbox: Outbox::default(),
            counters: Counters::default(),
            ops: Vec::new(),
            kept: Vec::new(),
            began: Instant::now(),
            step_began: Instant::now(),
            teardown: TeardownSummary::default(),
            earlier: <(Step, Tally)>::default(),
            written,
            admitted: watch::channel(false).0,
            reach: watch::channel(Reach::All).0,
            submitted: 0,
            committed: 0,
            result: None,
            fatal: None,
        }
    }

    /// Runs to the end of the job, or until something fatal.
    pub(super) async fn run(
        mut self,
        mut reports: mpsc::UnboundedReceiver<Report>,
        stop: CancellationToken,
    ) -> Result<JobResult, DriverError> {
        let over = CancellationToken::new();
        self.start_feed(over.clone());
        let Deadlines {
            job: mut deadline,
            running: mut running_by,
        } = self.setup.deadlines;
        let mut stopped = false;
        self.write_again();
        self.event(Event::Start);
        let mut burst = Vec::with_capacity(BURST);
        while self.result.is_none() && self.fatal.is_none() {
            self.show();
            let wakeup = self.setup.engine.next_wakeup().map(|due| self.began + due);
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stopped => {
                    stopped = true;
                    self.event(Event::Stop(StopCause::Interrupted));
                }
                _ = reports.recv_many(&mut burst, BURST) => {
                    for report in burst.drain(..) {
                        self.report(report);
                    }
                }
                () = sleep_until(wakeup) => self.event(Event::Tick),
                () = sleep_until(deadline) => {
                    deadline = None;
                    self.event(Event::Stop(StopCause::Deadline));
                }
                () = sleep_until(running_by) => {
                    running_by = None;
                    if !self.has_generated() {
                        self.event(Event::Stop(StopCause::NotRunning));
                    }
                }
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    if let Err(error) = ended
                        && error.is_panic()
                    {
                        tracing::error!(%error, "a task of the driver panicked");
                    }
                }
            }
        }
        if self.fatal.is_none() {
            self.flush(&mut reports).await;
        }
        over.cancel();
        self.tasks.shutdown().await;
        self.show();
        match (self.fatal, self.result) {
            (Some(fatal), _) => Err(fatal),
            (None, Some(result)) => {
                let target = self.setup.engine.config().target;
                self.setup
                    .board
                    .decided(self.setup.engine.book(), &result, target);
                Ok(result)
            }
            (None, None) => Err(DriverError::Task {
                problem: "the loop ended without a result".into(),
            }),
        }
    }

    /// A result counts once the ledger has everything that led to it. Kept groups on their way to the output get a moment; what does not
    /// arrive is in the ledger, and the next start writes it.
    async fn flush(&mut self, reports: &mut mpsc::UnboundedReceiver<Report>) {
        loop {
            let patience = if self.fatal.is_some() {
                return;
            } else if self.committed < self.submitted {
                LEDGER_PATIENCE
            } else if !self.outbox.is_empty() {
                OUTPUT_PATIENCE
            } else {
                return;
            };
            match tokio::time::timeout(patience, reports.recv()).await {
                Ok(Some(
                    report @ (Report::Ledger(_)
                    | Report::PartWritten
                    | Report::OutputDelayed(_)
                    | Report::Fatal(_)),
                )) => {
                    self.report(report);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) if self.committed < self.submitted => {
                    self.fatal = Some(LedgerError::Stopped.into());
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn start_feed(&mut self, over: CancellationToken) {
        if self.setup.config.spec.generate.agentic.is_none() {
            return;
        }
        let feed = self.setup.feed.clone();
        let router = self.setup.climber.router.clone();
        let patience = seconds(self.setup.config.timeouts.router_seconds);
        self.tasks
            .spawn(async move { feed.run(&router, patience, over).await });
    }

    fn has_generated(&self) -> bool {
        self.counters.generated_tokens > 0 || has_generated(self.setup.engine.book())
    }

    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn step(&self) -> Step {
        self.setup.engine.book().step
    }

    /// Tells the batch loop, stores what it decided, and carries out the rest.
    pub(super) fn event(&mut self, event: Event) {
        let commands = self.setup.engine.handle(event, self.now());
        let reach = self.setup.engine.reach();
        self.reach
            .send_if_modified(|known| std::mem::replace(known, reach) != reach);
        for command in commands {
            self.carry_out(command);
        }
        self.submit();
    }

    /// Hands what was decided to the ledger, all of it together.
    pub(super) fn submit(&mut self) {
        if self.ops.is_empty() {
            return;
        }
        match self.setup.ledger.submit(std::mem::take(&mut self.ops)) {
            Ok(number) => {
                self.submitted = number;
                for kept in self.kept.drain(..) {
                    self.outbox.submitted(number, kept);
                }
            }
            // The writer has told why it stopped, or is about to.
            Err(error) => tracing::debug!(%error, "nothing more is written"),
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Write(Record::Finished { result }) => {
                let result = self.explained(result);
                self.ops.push(Op::Record(Record::Finished { result }));
            }
            Command::Write(record) => self.ops.push(Op::Record(record)),
            Command::Load { take, group, .. } => self.load(take, group),
            Command::Generate {
                key,
                company,
                out_of_memory,
            } => self.generate(key, company, out_of_memory),
            Command::Cancel { key } => {
                if let Some(cancel) = self.running.get(&key) {
                    cancel.cancel();
                }
            }
            Command::Score { take, slot } => self.score(take, Some(slot)),
            Command::ScoreGroup { take } => self.score(take, None),
            Command::CancelScoring { take } => {
                if let Some(work) = self.work.get(&take) {
                    work.cancel.cancel();
                }
            }
            Command::Filter { take } => self.filter(take),
            Command::Settle {
                take,
                group: _,
                end,
                keep_samples,
            } => self.settle(take, &end, keep_samples),
            Command::Climb { rung, within } => self.climb(rung, within),
            Command::WriteStep { step, complete } => {
                self.teardown = TeardownSummary::of(&self.setup.engine.book().rungs);
                self.outbox.want(step, complete);
                self.write_due_step();
            }
            Command::Reopen { step } => self.reopen(step),
            Command::Finish(result) => self.finish(result),
        }
    }

    fn finish(&mut self, result: JobResult) {
        let rungs = &self.setup.engine.book().rungs;
        if !rungs.is_empty() {
            self.teardown = TeardownSummary::of(rungs);
        }
        self.result = Some(self.explained(result));
    }

    /// The batch loop's result, with what only we know of its causes.
    fn explained(&self, mut result: JobResult) -> JobResult {
        let mut more = Vec::new();
        if result.reason == Reason::ErrorBudgetExceeded
            && let Some(worst) = self.counters.worst()
            && !result.message.contains(worst.last_line)
        {
            more.push(format!("most often {}: {}", worst.reason, worst.last_line));
        }
        more.extend(self.left_out());
        for text in more {
            result.message = format!("{}; {text}", result.message);
        }
        result
    }

    /// How many prompts the job left out, and why.
    fn left_out(&self) -> Option<String> {
        let limit = self.setup.config.spec.dataset.max_prompt_tokens?;
        let total = self.setup.engine.book().total();
        let count = total.filtered.get(PROMPT_TOO_LONG)?;
        let rows = self.setup.dataset.rows();
        let what = match count {
            1 => "1 prompt was".to_owned(),
            more => format!("{more} prompts were"),
        };
        Some(format!(
            "{what} left out of a data set of {rows} rows: longer than dataset.maxPromptTokens ({limit} tokens)"
        ))
    }

    pub(super) fn fatal(&mut self, error: DriverError) {
        self.fatal.get_or_insert(error);
    }
}

/// Sleeps until then, or for ever.
async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
