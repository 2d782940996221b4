//! The engine: dispatch of events, the phases of a step, progress.

mod closing;
mod groups;
mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::book::{Book, Record};
use crate::budget::Budget;
use crate::command::{Command, Company, JobResult, Reason};
use crate::config::EngineConfig;
use crate::event::{Event, StopCause};
use crate::group::{Group, Phase, SlotState};
use crate::ids::{SampleKey, Step, TakeId};
use crate::outage::Outage;
use crate::queue::SampleQueue;
use crate::teardown::{Ladder, Reach};

/// What the engine is doing.
#[derive(Debug)]
enum Mode {
    /// Not started.
    Idle,
    /// Taking and generating.
    Sampling,
    /// On the teardown ladder.
    Closing {
        why: Reason,
        message: String,
        ladder: Box<Ladder>,
    },
    /// Waiting for the step's output.
    Writing { why: Reason, message: String },
    /// Over.
    Done,
}

/// Numbers for people and for the job's status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// The current step.
    pub step: Step,
    /// Groups that the step needs.
    pub target: u64,
    /// Groups that it has.
    pub kept: u64,
    /// Groups in work.
    pub groups_in_flight: u64,
    /// Samples being generated.
    pub samples_in_flight: u64,
    /// Executions that failed for reasons of infrastructure.
    pub infra_failures: u64,
    /// Tokens generated in takes whose samples are not used.
    pub discarded_tokens: u64,
    /// The ladder is being climbed.
    pub tearing_down: bool,
}

/// The batch loop of one job.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    book: Book,
    mode: Mode,
    groups: BTreeMap<TakeId, Group>,
    queue: SampleQueue,
    /// Executions that were started and have not ended, those of ended takes included.
    running: BTreeSet<SampleKey>,
    budget: Budget,
    outage: Outage,
    /// Executions that were started so far.
    executions: u64,
    stop: Option<StopCause>,
    infra_failures: u64,
    discarded_tokens: u64,
    out: Vec<Command>,
}

impl Engine {
    /// An engine for a new job.
    pub fn new(config: EngineConfig) -> Self {
        Self::resume(config, Book::default())
    }

    /// An engine that continues from a book. Nothing happens before [`Event::Start`].
    pub fn resume(config: EngineConfig, book: Book) -> Self {
        Self {
            config,
            book,
            mode: Mode::Idle,
            groups: BTreeMap::new(),
            queue: SampleQueue::default(),
            running: BTreeSet::new(),
            budget: Budget::default(),
            outage: Outage::default(),
            executions: 0,
            stop: None,
            infra_failures: 0,
            discarded_tokens: 0,
            out: Vec::new(),
        }
    }

    /// The ledger.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// The configuration.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Changes how many samples may be in flight; applies from the next event on.
    pub fn set_max_in_flight(&mut self, limit: u32) {
        self.config.max_in_flight = limit.max(1);
    }

    /// Whether [`Command::Finish`] was given.
    pub fn is_done(&self) -> bool {
        matches!(self.mode, Mode::Done)
    }

    /// Who still answers, as far as the rungs of the ladder have found out.
    pub fn reach(&self) -> Reach {
        match &self.mode {
            Mode::Closing { ladder, .. } => ladder.reach(),
            _ => Reach::All,
        }
    }

    /// When [`Event::Tick`] is due, in the time of `now`.
    pub fn next_wakeup(&self) -> Option<Duration> {
        match &self.mode {
            // What ends an execution is an event of its own.
            Mode::Sampling if self.is_full() || self.queue.is_empty() => None,
            Mode::Sampling => self.outage.closed_until().or(self.queue.next_due()),
            Mode::Closing { ladder, .. } => ladder.deadline(),
            Mode::Idle | Mode::Writing { .. } | Mode::Done => None,
        }
    }

    /// Numbers for people and for the job's status.
    pub fn progress(&self) -> Progress {
        Progress {
            step: self.book.step,
            target: u64::from(self.config.target),
            kept: self.book.kept(),
            groups_in_flight: self.groups.len() as u64,
            samples_in_flight: self.running.len() as u64,
            infra_failures: self.infra_failures,
            discarded_tokens: self.discarded_tokens,
            tearing_down: matches!(self.mode, Mode::Closing { .. }),
        }
    }

    /// Takes in one event at `now` (time since the process began) and gives out what to do, in order.
    ///
    /// An event of a take that has ended, or an answer that was not asked for, changes nothing.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Command> {
        match event {
            Event::Start => self.start(now),
            Event::Tick => {}
            Event::PromptReady { take, slots } => self.prompt_ready(take, &slots),
            Event::PromptRefused { take } => self.prompt_refused(take),
            Event::PromptSkipped { take, reason } => self.prompt_skipped(take, reason),
            Event::SampleEnded { key, end } => self.sample_ended(key, end, now),
            Event::SampleScored { take, slot, end } => self.sample_scored(take, slot, end),
            Event::GroupScored { take, end } => self.group_scored(take, end),
            Event::Filtered { take, verdict } => self.filtered(take, verdict),
            Event::Stop(cause) => self.stop_requested(cause),
            Event::RungEnded { rung, mut report } => {
                report.rung = rung;
                if let Mode::Closing { ladder, .. } = &mut self.mode {
                    ladder.answer(report);
                }
            }
            Event::StepWritten => self.step_written(),
        }
        self.advance(now);
        std::mem::take(&mut self.out)
    }

    fn start(&mut self, now: Duration) {
        if !matches!(self.mode, Mode::Idle) {
            return;
        }
        if let Some(result) = self.book.result.clone() {
            self.mode = Mode::Done;
            self.out.push(Command::Finish(result));
            return;
        }
        if self.book.step.0 >= self.config.steps {
            self.finish(Reason::TargetReached, String::new());
            return;
        }
        self.recycle_open_takes();
        self.mode = Mode::Sampling;
        if self.reason_to_close(now).is_none() {
            self.out.push(Command::Reopen {
                step: self.book.step,
            });
        }
    }

    fn stop_requested(&mut self, cause: StopCause) {
        self.stop.get_or_insert(cause);
    }

    /// Everything that follows from the state alone.
    fn advance(&mut self, now: Duration) {
        if matches!(self.mode, Mode::Sampling) {
            if let Some((why, message)) = self.reason_to_close(now) {
                self.close(why, message);
            } else {
                self.take_groups();
                self.start_samples(now);
                if let Some((why, message)) = self.reason_to_close(now) {
                    self.close(why, message);
                }
            }
        }
        self.climb(now);
    }

    fn reason_to_close(&self, now: Duration) -> Option<(Reason, String)> {
        if self.book.kept() >= u64::from(self.config.target) {
            let message = format!("{} groups kept", self.book.kept());
            return Some((Reason::TargetReached, message));
        }
        match self.stop {
            Some(cause) => Some(stopped_by(cause)),
            None => self.budget_to_close(now),
        }
    }

    fn is_full(&self) -> bool {
        self.running.len() >= self.config.max_in_flight as usize
    }

    fn start_samples(&mut self, now: Duration) {
        if !self.outage.admits(now) {
            return;
        }
        while !self.is_full() {
            let Some(key) = self.queue.pop(now) else {
                return;
            };
            let Some(slot) = self
                .groups
                .get_mut(&key.take)
                .filter(|group| group.phase == Phase::Working)
                .and_then(|group| group.slots.get_mut(key.slot as usize))
                .filter(|slot| slot.state == SlotState::Queued && slot.attempt == key.attempt)
            else {
                continue;
            };
            slot.state = SlotState::Running;
            slot.started = now;
            slot.execution = self.executions;
            self.executions += 1;
            let company = if slot.shared_deaths < self.config.limits.shared_deaths {
                Company::Any
            } else {
                Company::Alone
            };
            let out_of_memory = slot.out_of_memory;
            self.running.insert(key);
            self.out.push(Command::Generate {
                key,
                company,
                out_of_memory,
            });
        }
    }

    /// Puts a record into the book and into the commands.
    fn write(&mut self, record: Record) {
        match self.book.apply(&record) {
            Ok(()) => self.out.push(Command::Write(record)),
            Err(error) => {
                debug_assert!(false, "the engine made a record that does not fit: {error}");
            }
        }
    }

    fn finish(&mut self, reason: Reason, message: String) {
        let result = JobResult {
            reason,
            message,
            success: reason == Reason::TargetReached,
        };
        if reason != Reason::Interrupted {
            self.write(Record::Finished {
                result: result.clone(),
            });
        }
        self.mode = Mode::Done;
        self.out.push(Command::Finish(result));
    }
}

/// Why a job ends that was stopped.
fn stopped_by(cause: StopCause) -> (Reason, String) {
    let (reason, message) = match cause {
        StopCause::Interrupted => (Reason::Interrupted, "stopped from outside"),
        StopCause::Deadline => (Reason::DeadlineExceeded, "the job's deadline is over"),
        StopCause::NotRunning => (
            Reason::PreRunningDeadlineExceeded,
            "nothing was generated before preRunningDeadlineSeconds were over",
        ),
    };
    (reason, message.to_owned())
}
