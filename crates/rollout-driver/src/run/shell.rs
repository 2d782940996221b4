//! The loop: reports in, events to the batch loop, its commands carried out.

use std::collections::HashMap;
use std::time::Duration;

use rollout_engine::{
    Command, Event, JobResult, Reason, SampleEnd, SampleKey, Step, StopCause, TakeId,
    TeardownSummary, Verdict,
};
use rollout_session::SampleStatus;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::report::{Report, Unloaded};
use super::setup::Setup;
use super::tally::Counters;
use super::work::Work;
use super::writing::{Kept, Outbox};
use crate::config::seconds;
use crate::error::{DriverError, LedgerError};
use crate::generate::Generated;
use crate::ledger::Op;

/// Reports that are taken in before the status is brought up to date.
const BURST: usize = 256;

/// How long the ledger may be silent while the last records are awaited.
const FLUSH: Duration = Duration::from_mins(1);

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
    /// Whether the router admits the job's work.
    pub(super) admitted: watch::Sender<bool>,
    /// Numbers of the last submission to the ledger, and of the last one that is durable.
    submitted: u64,
    committed: u64,
    result: Option<JobResult>,
    fatal: Option<DriverError>,
}

impl Shell {
    pub(super) fn new(setup: Setup) -> Self {
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
            admitted: watch::channel(false).0,
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
        let mut deadline = self.deadline();
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
            (None, None) => Err(DriverError::Output {
                problem: "the loop ended without a result".into(),
            }),
        }
    }

    /// A result counts once the ledger has everything that led to it; kept groups are on their way to the output until then.
    async fn flush(&mut self, reports: &mut mpsc::UnboundedReceiver<Report>) {
        while self.fatal.is_none() && (self.committed < self.submitted || !self.outbox.is_empty()) {
            match tokio::time::timeout(FLUSH, reports.recv()).await {
                Ok(Some(report @ (Report::Ledger(_) | Report::PartWritten | Report::Fatal(_)))) => {
                    self.report(report);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => self.fatal = Some(LedgerError::Stopped.into()),
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

    fn deadline(&self) -> Option<Instant> {
        let limit = self.setup.config.spec.active_deadline_seconds?;
        let left = Duration::from_secs(limit).saturating_sub(self.setup.age);
        Some(self.began + left)
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
            Command::Write(record) => self.ops.push(Op::Record(record)),
            Command::Load { take, group, .. } => self.load(take, group),
            Command::Generate { key } => self.generate(key),
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

    fn finish(&mut self, mut result: JobResult) {
        if result.reason == Reason::ErrorBudgetExceeded
            && let Some(worst) = self.counters.worst()
        {
            result.message = format!("{}; most often {worst}", result.message);
        }
        self.result = Some(result);
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Loaded(take, loaded) => self.loaded(take, *loaded),
            Report::Generated(key, generated) => self.generated(key, *generated),
            Report::Scored(take, slot, rewards) => self.scored(take, Some(slot), rewards),
            Report::GroupScored(take, rewards) => self.scored(take, None, rewards),
            Report::Filtered(take, decided) => {
                if let (Some(problem), Verdict::Drop { reason } | Verdict::Fail { reason }) =
                    (&decided.problem, &decided.verdict)
                {
                    self.counters.failed(reason, problem);
                }
                if let Some(work) = self.work.get_mut(&take) {
                    work.rows = decided.rows;
                    self.event(Event::Filtered {
                        take,
                        verdict: decided.verdict,
                    });
                }
            }
            Report::Rung(rung, report) => self.event(Event::RungEnded { rung, report }),
            Report::Ledger(Ok(number)) => {
                self.committed = number;
                for kept in self.outbox.committed(number) {
                    self.write_part(kept);
                }
                self.write_due_step();
            }
            Report::Ledger(Err(error)) => self.fatal = Some(error.into()),
            Report::PartWritten => {
                self.outbox.written();
                self.write_due_step();
            }
            Report::StepWritten(step) => {
                self.ops.push(Op::StepInOutput { step });
                self.event(Event::StepWritten);
            }
            Report::Fatal(error) => self.fatal = Some(error),
        }
    }

    fn loaded(&mut self, take: TakeId, loaded: Result<super::report::Loaded, Unloaded>) {
        let Some(work) = self.work.get_mut(&take) else {
            return;
        };
        match loaded {
            Ok(loaded) => {
                let rollout = &self.setup.config.spec.rollout;
                let mask = rollout
                    .partial
                    .is_some_and(|partial| partial.mask_off_policy);
                let slots = work.load(loaded, rollout.samples_per_prompt, mask);
                self.event(Event::PromptReady { take, slots });
            }
            Err(Unloaded::BadRow(problem)) => {
                tracing::warn!(problem, "a row of the data set cannot be used");
                self.counters.failed("bad_row", &problem);
                self.event(Event::PromptRefused { take });
            }
            Err(Unloaded::Skipped(reason)) => self.event(Event::PromptSkipped {
                take,
                reason: reason.to_owned(),
            }),
        }
    }

    fn generated(&mut self, key: SampleKey, generated: Generated) {
        self.running.remove(&key);
        self.counters.generated(&generated);
        if let Some(problem) = &generated.problem {
            tracing::debug!(%key, problem, "a sample did not end well");
        }
        let Generated { samples, end, .. } = generated;
        let resumes = self.setup.generate.resumes() && self.setup.engine.config().partial;
        if let Some(slot) = self
            .work
            .get_mut(&key.take)
            .and_then(|work| work.slots.get_mut(key.slot as usize))
            && !samples.is_empty()
        {
            match end {
                SampleEnd::Finished { .. } => {
                    slot.samples = samples;
                    slot.finished = true;
                }
                SampleEnd::Aborted { .. }
                    if resumes || self.setup.config.spec.output.include_all =>
                {
                    slot.samples = samples;
                    for sample in &mut slot.samples {
                        sample.status = SampleStatus::Aborted;
                    }
                }
                _ => {}
            }
        }
        self.event(Event::SampleEnded { key, end });
    }

    fn scored(
        &mut self,
        take: TakeId,
        slot: Option<u32>,
        rewards: Result<Vec<Option<serde_json::Value>>, String>,
    ) {
        let Some(work) = self.work.get_mut(&take) else {
            return;
        };
        let scored = match rewards {
            Ok(rewards) => {
                work.set_rewards(slot, rewards);
                true
            }
            Err(problem) => {
                tracing::warn!(%take, problem, "a reward failed");
                self.counters.failed("reward_failed", &problem);
                false
            }
        };
        self.event(match slot {
            Some(slot) => Event::SampleScored { take, slot, scored },
            None => Event::GroupScored { take, scored },
        });
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
