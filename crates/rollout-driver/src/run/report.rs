//! What the tasks of a run tell its loop.

use std::sync::Arc;

use rollout_engine::{Rung, RungReport, SampleKey, Step, TakeId, Verdict};
use rollout_session::Sample;
use serde_json::Value;
use sglang_client::Prompt;

use super::scoring::Unscored;
use crate::dataset::PromptRow;
use crate::error::{DriverError, LedgerError};
use crate::generate::Generated;

/// A loaded prompt.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) row: PromptRow,
    pub(super) prompt: Option<Arc<Prompt>>,
    /// Per slot: samples of an earlier take.
    pub(super) stored: Vec<Stored>,
}

/// The samples of one slot from an earlier take.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) slot: u32,
    pub(super) finished: bool,
    pub(super) scored: bool,
    pub(super) samples: Vec<Sample>,
}

/// Why a take has no prompt.
#[derive(Debug)]
pub(super) enum Unloaded {
    /// A bad row: counted by the error budget.
    BadRow(String),
    /// A good row that the job leaves out.
    Skipped(&'static str),
}

/// What the filter said about a group.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) verdict: Verdict,
    /// The rows of a group that may be kept.
    pub(super) rows: Option<Arc<[u8]>>,
    /// For people, when the filter failed.
    pub(super) problem: Option<String>,
}

/// One thing that a task has to tell.
#[derive(Debug)]
pub(super) enum Report {
    Loaded(TakeId, Box<Result<Loaded, Unloaded>>),
    Generated(SampleKey, Box<Generated>),
    /// Rewards of a slot's samples, `None` for those that were left alone.
    Scored(TakeId, u32, Result<Vec<Option<Value>>, Unscored>),
    /// Rewards of all samples of a group, slot after slot.
    GroupScored(TakeId, Result<Vec<Option<Value>>, Unscored>),
    Filtered(TakeId, Box<Decided>),
    Rung(Rung, RungReport),
    /// The writer committed everything up to this submission, or stopped.
    Ledger(Result<u64, LedgerError>),
    /// A kept group is in the output.
    PartWritten,
    StepWritten(Step),
    /// The router does not let the job's work in again.
    NotReopened(DriverError),
    /// The output was not written, and is tried again.
    OutputDelayed(String),
    Fatal(DriverError),
}
