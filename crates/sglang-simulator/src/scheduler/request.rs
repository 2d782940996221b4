//! A request inside the scheduler, and what is known of it at its end.

use std::sync::Arc;

use super::prefix_cache::NodeId;
use super::queue::Place;
use super::{Key, Nanos};
use crate::replies::Output;

/// What the scheduler is asked to generate.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its name.
    pub key: Key,
    /// Prompt ids.
    pub prompt: Arc<[u32]>,
    /// What will be generated.
    pub output: Output,
    /// Whether progress is reported.
    pub streaming: bool,
    /// How many prompt tokens may come from the cache; fewer than all when log-probabilities of the prompt are wanted.
    pub cacheable: usize,
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its output is complete; the output says whether by a stop or by length.
    Complete,
    /// Aborted while it ran.
    Aborted,
    /// Aborted while it waited.
    AbortedWaiting,
}

/// Times of a request, simulated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// Time spent in the waiting queue, all stays together.
    pub queued: Nanos,
    /// When its first prefill began.
    pub forward_entry: Option<Nanos>,
    /// When its first prefill ended, and its first token was there.
    pub prefill_finished: Option<Nanos>,
    /// Prompt tokens found in the cache at its first prefill.
    pub cached: usize,
    /// How often it was retracted.
    pub retractions: u32,
}

/// Tokens from `start` on were generated under `version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionSpan {
    /// Version of the weights.
    pub version: Arc<str>,
    /// First token.
    pub start: usize,
}

/// The end of a request.
#[derive(Debug)]
pub struct Outcome {
    /// What was asked.
    pub job: Job,
    /// How it ended.
    pub ending: Ending,
    /// Tokens generated.
    pub generated: usize,
    /// When.
    pub finished: Nanos,
    /// Times on the way.
    pub times: Times,
    /// Versions of the weights, at least one.
    pub versions: Vec<VersionSpan>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Waiting,
    Prefilling,
    Running,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) job: Job,
    pub(super) stage: Stage,
    pub(super) waiting_since: Nanos,
    /// Its place in the waiting queue, while it waits.
    pub(super) place: Place,
    /// Prompt tokens that were not cached when it came.
    pub(super) uncached: usize,
    times: Times,
    /// Tokens generated when it joined the batch at `joined_step`, or in all when it does not run.
    pub(super) base: usize,
    pub(super) joined_step: u64,
    pub(super) finish_step: u64,
    pub(super) node: Option<NodeId>,
    pub(super) aborting: bool,
    pub(super) reported: usize,
    versions: Vec<VersionSpan>,
}

impl Request {
    pub(super) fn new(job: Job, uncached: usize, place: Place, now: Nanos) -> Self {
        Self {
            job,
            stage: Stage::Waiting,
            waiting_since: now,
            place,
            uncached,
            times: Times::default(),
            base: 0,
            joined_step: 0,
            finish_step: 0,
            node: None,
            aborting: false,
            reported: 0,
            versions: Vec::new(),
        }
    }

    /// Tokens generated after `steps` steps of the scheduler.
    pub(super) fn generated(&self, steps: u64) -> usize {
        let decoded = if self.stage == Stage::Running {
            steps - self.joined_step
        } else {
            0
        };
        self.base + usize::try_from(decoded).unwrap_or(usize::MAX)
    }

    pub(super) fn times(&self) -> Times {
        self.times
    }

    pub(super) fn start_prefill(&mut self, cached: usize, now: Nanos) {
        self.stage = Stage::Prefilling;
        self.times.queued += now - self.waiting_since;
        if self.times.forward_entry.is_none() {
            self.times.forward_entry = Some(now);
            self.times.cached = cached;
        }
    }

    pub(super) fn end_prefill(&mut self, now: Nanos) {
        self.times.prefill_finished.get_or_insert(now);
    }

    /// Back to the queue with the tokens that it has.
    pub(super) fn requeue(&mut self, place: Place, retracted: bool, steps: u64, now: Nanos) {
        self.place = place;
        self.base = self.generated(steps);
        self.stage = Stage::Waiting;
        self.waiting_since = now;
        self.node = None;
        self.times.retractions += u32::from(retracted);
    }

    /// The version of the first token, unless there is one already.
    pub(super) fn begin_version(&mut self, version: &Arc<str>) {
        if self.versions.is_empty() {
            self.versions.push(VersionSpan {
                version: version.clone(),
                start: 0,
            });
        }
    }

    /// The version of every token from now on.
    pub(super) fn change_version(&mut self, version: &Arc<str>, steps: u64) {
        let start = self.generated(steps);
        if start == 0 {
            return;
        }
        if self.versions.last().is_some_and(|last| last.start == start) {
            self.versions.pop();
        }
        if self
            .versions
            .last()
            .is_none_or(|last| last.version != *version)
        {
            self.versions.push(VersionSpan {
                version: version.clone(),
                start,
            });
        }
    }

    pub(super) fn into_outcome(self, ending: Ending, generated: usize, at: Nanos) -> Outcome {
        Outcome {
            job: self.job,
            ending,
            generated,
            finished: at,
            times: self.times,
            versions: self.versions,
        }
    }
}
