//! First phase: which turns make which sample.

use super::CollectOptions;
use crate::forest::{Forest, Line, TurnId};
use crate::sample::SampleStatus;

/// A turn within a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedTurn {
    pub(super) turn: TurnId,
    /// Output tokens that are used.
    pub(super) kept: usize,
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
}

/// What [`plan`] decided.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectPlan {
    pub(super) samples: Vec<PlannedSample>,
    pub(super) line: Line,
    pub(super) options: CollectOptions,
    /// Token ids whose text is wanted, special tokens kept. Answered in the same order. Outputs are among them although the engine
    /// sends the text of each token: characters that are spread over tokens, and the spaces of some tokenizers, get lost in single
    /// tokens.
    pub decode: Vec<Vec<u32>>,
}

/// Plans the samples of a session.
pub fn plan(forest: &Forest, options: CollectOptions) -> CollectPlan {
    let line = forest.line();
    let mut samples = Vec::new();
    let runs = if options.split { line.runs.len() } else { 1 };
    for run in line.runs.iter().take(runs) {
        let merged = merge(forest, run, options.max_seq_len);
        let wanted = if options.split { merged.len() } else { 1 };
        samples.extend(merged.into_iter().take(wanted));
    }
    let mut plan = CollectPlan {
        samples,
        line,
        options,
        decode: Vec::new(),
    };
    plan.request_texts(forest);
    plan
}

/// Merges the turns of one run. A turn that did not complete ends its sample; the next one starts another.
fn merge(forest: &Forest, run: &[TurnId], max_seq_len: Option<usize>) -> Vec<PlannedSample> {
    let mut samples: Vec<PlannedSample> = Vec::new();
    let mut open = false;
    for (position, id) in run.iter().enumerate() {
        let Some(turn) = forest.turn(*id) else { break };
        let output = turn.output_ids().len();
        let excess = max_seq_len.map_or(0, |max| turn.total().saturating_sub(max));
        if excess > 0 && excess >= output {
            break;
        }
        let status = if excess > 0 {
            SampleStatus::Truncated
        } else {
            turn.status()
        };
        let planned = PlannedTurn {
            turn: *id,
            kept: output - excess,
            gap_text: None,
            output_text: None,
        };
        match samples.last_mut() {
            Some(sample) if open => {
                cut_unrepeated_tail(forest, sample, run[position - 1], *id);
                sample.turns.push(planned);
                sample.status = status;
            }
            _ => samples.push(PlannedSample {
                turns: vec![planned],
                status,
            }),
        }
        if excess > 0 {
            break;
        }
        open = status == SampleStatus::Completed;
    }
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

impl CollectPlan {
    /// Puts down which token ids have to be decoded.
    fn request_texts(&mut self, forest: &Forest) {
        for sample in &mut self.samples {
            let Some(last) = sample.turns.last() else {
                continue;
            };
            let ids = forest.ids(last.turn);
            let mut end_before: Option<usize> = None;
            for planned in &mut sample.turns {
                let Some(turn) = forest.turn(planned.turn) else {
                    continue;
                };
                let start = turn.prompt_len();
                if let Some(end) = end_before
                    && end < start
                {
                    planned.gap_text = Some(self.decode.len());
                    self.decode.push(ids[end..start].to_vec());
                }
                let end = start + planned.kept;
                if planned.kept > 0 {
                    planned.output_text = Some(self.decode.len());
                    self.decode.push(turn.output_ids()[..planned.kept].to_vec());
                }
                end_before = Some(end);
            }
        }
    }
}
