//! Turns of one run become samples: budget, merging, and where it stops.

use serde::Serialize;

use super::CollectOptions;
use super::replay::{self, RowsOfTurn, SampleRows};
use crate::forest::{Forest, Leaf, TurnId};
use crate::sample::SampleStatus;

/// A turn within a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedTurn {
    pub(super) turn: TurnId,
    /// Output tokens that are used.
    pub(super) kept: usize,
    /// Another sample trains the output.
    pub(super) trained_elsewhere: bool,
    /// Entry of the texts to decode: what lies between the turn before and this one.
    pub(super) gap_text: Option<usize>,
    /// Entry of the texts to decode: the output.
    pub(super) output_text: Option<usize>,
}

/// A sample before its texts are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedSample {
    pub(super) turns: Vec<PlannedTurn>,
    pub(super) status: SampleStatus,
    /// Place of its first turn in its run.
    pub(super) first: usize,
    pub(super) rows: SampleRows,
    /// The leaf of a tree that it stands for.
    pub(super) leaf: Option<Leaf>,
}

impl PlannedSample {
    /// Number of its tokens.
    pub(super) fn length(&self, forest: &Forest) -> usize {
        self.turns.last().map_or(0, |last| {
            forest.turn(last.turn).map_or(0, crate::Turn::prompt_len) + last.kept
        })
    }
}

/// A turn that could not be used, and everything after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shortened {
    /// Number of the turn within the session, from 1.
    pub turn: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl Shortened {
    pub(super) fn at(id: TurnId, reason: String) -> Self {
        Self {
            turn: id.index() + 1,
            reason,
        }
    }
}

/// Merges the turns of one run. A turn that did not complete ends its sample; the next one starts another.
pub(super) fn merge(
    forest: &Forest,
    run: &[TurnId],
    options: &CollectOptions,
    shortened: &mut Vec<Shortened>,
) -> Vec<PlannedSample> {
    let mut samples: Vec<PlannedSample> = Vec::new();
    let mut rows_before = RowsOfTurn::default();
    let mut open = false;
    for (position, id) in run.iter().enumerate() {
        let Some(turn) = forest.turn(*id) else { break };
        let output = turn.output_ids().len();
        let excess = options
            .max_seq_len
            .map_or(0, |max| turn.total().saturating_sub(max));
        if excess > 0 && excess >= output {
            break;
        }
        let rows = match RowsOfTurn::read(forest, *id, options) {
            Ok(rows) => rows,
            Err(reason) => {
                shortened.push(Shortened::at(*id, reason));
                break;
            }
        };
        let status = if excess > 0 {
            SampleStatus::Truncated
        } else {
            turn.status()
        };
        let planned = PlannedTurn {
            turn: *id,
            kept: output - excess,
            trained_elsewhere: false,
            gap_text: None,
            output_text: None,
        };
        match samples.last_mut() {
            Some(sample) if open && rows.have_all_of(rows_before) => {
                cut_unrepeated_tail(forest, sample, run[position - 1], *id);
                sample.turns.push(planned);
                sample.status = status;
            }
            _ => samples.push(PlannedSample {
                turns: vec![planned],
                status,
                first: position,
                rows: SampleRows::default(),
                leaf: None,
            }),
        }
        if excess > 0 {
            break;
        }
        rows_before = rows;
        open = status == SampleStatus::Completed;
    }
    for sample in &mut samples {
        replay::plan_rows(forest, run, sample, options, shortened);
    }
    samples.retain(|sample| !sample.turns.is_empty());
    samples
}

/// Trailing output tokens of `before` that the prompt of `next` does not repeat are not in the merged sample.
fn cut_unrepeated_tail(forest: &Forest, sample: &mut PlannedSample, before: TurnId, next: TurnId) {
    let (Some(turn), Some(last)) = (forest.turn(before), sample.turns.last_mut()) else {
        return;
    };
    let repeated = forest.shared_with_parent(next);
    last.kept = repeated.saturating_sub(turn.prompt_len()).min(last.kept);
}
