//! What the engine tells the shell.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::book::{Record, Source};
use crate::ids::{GroupIndex, SampleKey, Step, TakeId};
use crate::tally::TakeEnd;
use crate::teardown::Rung;

/// Stable reason of a job's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Every step has its groups.
    TargetReached,
    /// No further group can be expected to pass.
    DatasetExhausted,
    /// `activeDeadlineSeconds` is over.
    DeadlineExceeded,
    /// `preRunningDeadlineSeconds` is over, and nothing has been generated.
    PreRunningDeadlineExceeded,
    /// More failures than the error budget allows.
    ErrorBudgetExceeded,
    /// Stopped from outside, undecided: a later start continues.
    Interrupted,
}

/// How the job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// Why.
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// Whether every step has its groups.
    pub success: bool,
}

/// With whom a sample may share the process that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// With any other.
    Any,
    /// With none: it was in processes that died.
    Alone,
}

/// Whose failure it is when the memory of a sample's agent runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Nobody's: it has not happened before, and the next place may have more.
    Nobody,
    /// The agent's: it has happened before, and is a result.
    Agent,
}

/// One thing to do, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Store this before any later command takes effect outside.
    Write(Record),
    /// Load the prompt of a take; answer `PromptReady` or `PromptRefused`.
    Load {
        /// The take.
        take: TakeId,
        /// The group.
        group: GroupIndex,
        /// Where it comes from.
        source: Source,
    },
    /// Run one sample; answer `SampleEnded`, always.
    Generate {
        /// Which.
        key: SampleKey,
        /// With whom.
        company: Company,
        /// Whose failure it is when its agent runs out of memory.
        out_of_memory: Blame,
    },
    /// End one execution early, keeping what it has; `SampleEnded` is still owed.
    Cancel {
        /// Which.
        key: SampleKey,
    },
    /// Compute one reward; answer `SampleScored`.
    Score {
        /// The take.
        take: TakeId,
        /// The slot.
        slot: u32,
    },
    /// Compute the rewards of a whole group; answer `GroupScored`.
    ScoreGroup {
        /// The take.
        take: TakeId,
    },
    /// Forget the reward tasks of a take; no answer is owed.
    CancelScoring {
        /// The take.
        take: TakeId,
    },
    /// Ask the filter; answer `Filtered`.
    Filter {
        /// The take.
        take: TakeId,
    },
    /// The take is over (the record of it was written just before): move or drop its samples.
    Settle {
        /// The take.
        take: TakeId,
        /// Its group.
        group: GroupIndex,
        /// How it ended.
        end: TakeEnd,
        /// Keep the samples for the next take of this group.
        keep_samples: bool,
    },
    /// Climb one rung; answer `RungEnded` unless the rung is [`Rung::Drain`] or [`Rung::Collect`], whose end the engine sees itself.
    Climb {
        /// Which.
        rung: Rung,
        /// Time that it has.
        within: Duration,
    },
    /// Write the output of a step; answer `StepWritten`.
    WriteStep {
        /// Which.
        step: Step,
        /// Whether the step has all its groups.
        complete: bool,
    },
    /// Open admission again for the next step.
    Reopen {
        /// The step that begins.
        step: Step,
    },
    /// The job is over.
    Finish(JobResult),
}
