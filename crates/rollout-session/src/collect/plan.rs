//! First phase: which turns make which sample.

use super::CollectOptions;
use super::merge::{PlannedSample, Shortened, merge};
use super::pick;
use crate::forest::{Forest, Line, Shape};

/// What [`plan`] decided.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectPlan {
    pub(super) samples: Vec<PlannedSample>,
    pub(super) line: Line,
    pub(super) options: CollectOptions,
    /// Turns that could not be used, and why.
    pub shortened: Vec<Shortened>,
    /// What somebody may want to look at.
    pub warnings: Vec<String>,
    /// Token ids whose text is wanted, special tokens kept. Answered in the same order. Outputs are among them although the engine
    /// sends the text of each token: characters that are spread over tokens, and the spaces of some tokenizers, get lost in single
    /// tokens.
    pub decode: Vec<Vec<u32>>,
}

/// Plans the samples of a session.
pub fn plan(forest: &Forest, options: CollectOptions) -> CollectPlan {
    let mut plan = CollectPlan {
        samples: Vec::new(),
        line: Line::default(),
        options,
        shortened: Vec::new(),
        warnings: Vec::new(),
        decode: Vec::new(),
    };
    match forest.shape() {
        Shape::Recorded => plan.take_runs(forest, forest.line()),
        Shape::Line => plan.take_runs(forest, conversation(forest)),
        Shape::Tree => plan.take_leaves(forest),
    }
    plan.request_texts(forest);
    plan
}

/// The conversation as it is now, as a line of one run.
fn conversation(forest: &Forest) -> Line {
    let path = forest.path(forest.head());
    let superseded = forest.len() - path.len();
    let runs = if path.is_empty() { vec![] } else { vec![path] };
    Line {
        runs,
        breaks: Vec::new(),
        superseded,
    }
}

impl CollectPlan {
    fn take_runs(&mut self, forest: &Forest, line: Line) {
        let split = self.options.split;
        let runs = if split { line.runs.len() } else { 1 };
        for run in line.runs.iter().take(runs) {
            let merged = merge(forest, run, &self.options, &mut self.shortened);
            let wanted = if split { merged.len() } else { 1 };
            self.samples.extend(merged.into_iter().take(wanted));
        }
        self.line = line;
    }

    fn take_leaves(&mut self, forest: &Forest) {
        let mut material = Vec::new();
        for leaf in forest.leaves() {
            let merged = merge(forest, &leaf.path, &self.options, &mut self.shortened);
            if let Some(mut sample) = merged.into_iter().next() {
                sample.leaf = Some(leaf);
                material.push(sample);
            }
        }
        let (mut picked, warnings) = self.options.picker.pick(forest, material);
        pick::train_once(&mut picked);
        self.samples = picked;
        self.warnings = warnings;
        // Leaves share turns.
        self.shortened.sort_by_key(|shortened| shortened.turn);
        self.shortened.dedup();
    }

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
