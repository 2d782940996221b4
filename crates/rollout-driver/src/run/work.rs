//! The samples of the groups in work.

use std::collections::HashMap;
use std::sync::Arc;

use rollout_engine::{GroupIndex, SlotStart, filter::Scored};
use rollout_session::{Sample, SampleStatus};
use serde_json::Value;
use sglang_client::Prompt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::report::Loaded;
use crate::dataset::PromptRow;
use crate::generate;
use crate::ledger::StoredSlot;

/// The samples of one slot.
#[derive(Debug, Default)]
pub(super) struct SlotWork {
    pub(super) samples: Vec<Sample>,
    /// Generated to its end.
    pub(super) finished: bool,
    /// It has its reward.
    pub(super) scored: bool,
}

/// One group in work.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) group: GroupIndex,
    pub(super) row: Option<Arc<PromptRow>>,
    pub(super) prompt: Option<Arc<Prompt>>,
    pub(super) slots: Vec<SlotWork>,
    /// The ledger has samples of an earlier take.
    pub(super) has_stored: bool,
    /// The encoded samples, once the group passed its filter.
    pub(super) rows: Option<Arc<[u8]>>,
    /// Ends reward and filter tasks.
    pub(super) cancel: CancellationToken,
    /// Since when its samples wait for their turn.
    pub(super) since: Instant,
}

impl Work {
    pub(super) fn new(group: GroupIndex) -> Self {
        Self {
            group,
            row: None,
            prompt: None,
            slots: Vec::new(),
            has_stored: false,
            rows: None,
            cancel: CancellationToken::new(),
            since: Instant::now(),
        }
    }

    /// Takes in what was loaded. Samples of an earlier take are masked when the job says so.
    pub(super) fn load(&mut self, loaded: Loaded, slots: u32, mask: bool) -> Vec<SlotStart> {
        let mut stored: HashMap<u32, _> = loaded
            .stored
            .into_iter()
            .map(|stored| (stored.slot, stored))
            .collect();
        self.has_stored = !stored.is_empty();
        self.since = Instant::now();
        self.row = Some(Arc::new(loaded.row));
        self.prompt = loaded.prompt;
        let mut starts = Vec::new();
        for slot in 0..slots {
            let mut work = SlotWork::default();
            let start = match stored.remove(&slot) {
                None => SlotStart::Generate,
                Some(found) => {
                    work.samples = found.samples;
                    for sample in &mut work.samples {
                        generate::resume(sample, mask);
                    }
                    work.finished = found.finished;
                    work.scored = found.scored;
                    if found.finished {
                        SlotStart::Finished {
                            scored: found.scored,
                        }
                    } else {
                        SlotStart::Resume
                    }
                }
            };
            self.slots.push(work);
            starts.push(start);
        }
        starts
    }

    /// The sample that a generate function begins with.
    pub(super) fn begin(&self, slot: u32) -> Option<Sample> {
        let row = self.row.as_ref()?;
        let found = self.slots.get(slot as usize)?;
        Some(match found.samples.first() {
            Some(sample) if !found.finished => sample.clone(),
            _ => generate::fresh(row, slot),
        })
    }

    /// All samples, slot after slot.
    pub(super) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.slots.iter().flat_map(|slot| &slot.samples)
    }

    /// Sets rewards in the order of [`Work::samples`].
    pub(super) fn set_rewards(&mut self, slot: Option<u32>, rewards: Vec<Option<Value>>) {
        let slots = match slot {
            Some(slot) => self.slots.get_mut(slot as usize..=slot as usize),
            None => Some(&mut self.slots[..]),
        };
        let Some(slots) = slots else { return };
        let mut rewards = rewards.into_iter();
        for slot in slots {
            for sample in &mut slot.samples {
                if let Some(Some(reward)) = rewards.next() {
                    sample.reward = reward;
                }
            }
            slot.scored = true;
        }
    }

    /// What a filter sees.
    pub(super) fn scored(&self, key: &str) -> Vec<Scored> {
        self.samples()
            .map(|sample| Scored {
                reward: sample.scalar_reward(key),
                aborted: sample.status == SampleStatus::Aborted,
            })
            .collect()
    }

    /// What the next take of the group can use. `parts`: also samples that were cut off.
    pub(super) fn stored(&self, step: u32, parts: bool) -> Vec<StoredSlot> {
        let mut stored = Vec::new();
        for (position, slot) in self.slots.iter().enumerate() {
            let worth =
                slot.finished || (parts && slot.samples.iter().any(|s| s.response_length > 0));
            if !worth {
                continue;
            }
            let mut samples = slot.samples.clone();
            for sample in samples.iter_mut().filter(|s| s.response_length > 0) {
                sample
                    .metadata
                    .entry("start_rollout_id")
                    .or_insert_with(|| step.into());
            }
            // A sample is plain data: it can always be encoded.
            let Ok(encoded) = serde_json::to_vec(&samples) else {
                continue;
            };
            stored.push(StoredSlot {
                slot: u32::try_from(position).unwrap_or(u32::MAX),
                finished: slot.finished,
                scored: slot.scored,
                samples: encoded,
            });
        }
        stored
    }
}
