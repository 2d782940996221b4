//! Loading: the row of a group, its prompt, and what an earlier take left.

use std::sync::Arc;

use rollout_engine::GroupIndex;
use rollout_session::Sample;
use sglang_client::Prompt;

use super::report::{Loaded, Stored, Unloaded};
use crate::dataset::{Cursor, Dataset};
use crate::generate::PromptMaker;
use crate::ledger::Ledger;

/// Reason of a take whose prompt is longer than the job allows.
pub(super) const PROMPT_TOO_LONG: &str = "prompt_too_long";

/// Where prompts are loaded from. Blocking.
pub(super) struct RowSource {
    pub(super) dataset: Arc<Dataset>,
    pub(super) ledger: Arc<Ledger>,
    /// None for agents, which get the prompt as it is.
    pub(super) prompts: Option<PromptMaker>,
    pub(super) samples_per_prompt: u32,
    /// Longer prompts are left out.
    pub(super) max_prompt_tokens: Option<usize>,
    /// The ledger has samples of an earlier take.
    pub(super) stored: bool,
}

impl RowSource {
    pub(super) fn load(&self, group: GroupIndex) -> Result<Loaded, Unloaded> {
        let bad_row = |problem: String| Unloaded::BadRow(problem);
        let mut row = self
            .dataset
            .next_group(&mut self.cursor(group))
            .map_err(|error| bad_row(error.to_string()))?;
        let mut prompt = None;
        if let Some(maker) = &self.prompts {
            let made = maker.make(&mut row).map_err(|error| {
                let location = self.dataset.prompt_location(row.row);
                bad_row(format!("{location}: {error}"))
            })?;
            if let (Prompt::Ids(ids), Some(limit)) = (&made, self.max_prompt_tokens)
                && ids.len() > limit
            {
                return Err(Unloaded::Skipped(PROMPT_TOO_LONG));
            }
            prompt = Some(Arc::new(made));
        }
        Ok(Loaded {
            row,
            prompt,
            stored: self.stored_samples(group),
        })
    }

    /// The place of a group: groups are counted over all rows of all epochs.
    fn cursor(&self, group: GroupIndex) -> Cursor {
        let rows = self.dataset.rows().max(1);
        let index = i64::try_from(group.0).unwrap_or(i64::MAX);
        Cursor {
            epoch: group.0 / rows,
            offset: group.0 % rows,
            group_index: index,
            sample_index: index.saturating_mul(i64::from(self.samples_per_prompt)),
        }
    }

    /// Samples of an earlier take. What cannot be read is generated anew: nothing is lost but work.
    fn stored_samples(&self, group: GroupIndex) -> Vec<Stored> {
        if !self.stored {
            return Vec::new();
        }
        let slots = self.ledger.partials(group).unwrap_or_else(|error| {
            tracing::warn!(%error, %group, "stored samples cannot be read");
            Vec::new()
        });
        let read = slots.into_iter().filter_map(|slot| {
            let samples: Vec<Sample> = serde_json::from_slice(&slot.samples)
                .inspect_err(|error| tracing::warn!(%error, %group, "stored samples are damaged"))
                .ok()?;
            Some(Stored {
                slot: slot.slot,
                finished: slot.finished,
                scored: slot.scored,
                samples,
            })
        });
        read.collect()
    }
}
