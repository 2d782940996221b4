//! A group in work: the state of its slots.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::command::Blame;
use crate::ids::{GroupIndex, TakeId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Waits for its turn, or for the end of a pause after a failure.
    Queued,
    /// An execution is under way.
    Running,
    /// Generated, no reward yet.
    Generated,
    /// Nothing further to do.
    Done,
    /// Ended from outside; it may have tokens.
    Aborted,
}

#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) state: SlotState,
    pub(crate) attempt: u32,
    /// How often it was run again for an infrastructure failure.
    pub(crate) refills: u32,
    /// Shared processes that died with it.
    pub(crate) shared_deaths: u32,
    /// Whose failure it is when its agent runs out of memory now.
    pub(crate) out_of_memory: Blame,
    pub(crate) started: Duration,
    /// The number of its last execution among all of the job.
    pub(crate) execution: u64,
    /// The slot has samples worth keeping: finished ones, or a part.
    pub(crate) has_samples: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Loading,
    Working,
    /// All slots are generated; a group reward is being computed.
    Scoring,
    Filtering,
}

#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) index: GroupIndex,
    pub(crate) tries: u32,
    pub(crate) phase: Phase,
    pub(crate) slots: Vec<Slot>,
    /// Tokens generated in this take.
    pub(crate) tokens: u64,
}

/// A slot of a take that is in work.
pub(crate) fn slot_mut(
    groups: &mut BTreeMap<TakeId, Group>,
    take: TakeId,
    slot: u32,
) -> Option<&mut Slot> {
    groups.get_mut(&take)?.slots.get_mut(slot as usize)
}

impl Group {
    pub(crate) fn new(index: GroupIndex, tries: u32) -> Self {
        Self {
            index,
            tries,
            phase: Phase::Loading,
            slots: Vec::new(),
            tokens: 0,
        }
    }

    pub(crate) fn all(&self, predicate: impl Fn(SlotState) -> bool) -> bool {
        self.slots.iter().all(|slot| predicate(slot.state))
    }

    pub(crate) fn running(&self) -> bool {
        self.slots
            .iter()
            .any(|slot| slot.state == SlotState::Running)
    }

    pub(crate) fn has_samples(&self) -> bool {
        self.slots.iter().any(|slot| slot.has_samples)
    }

    /// Samples that are not generated yet.
    pub(crate) fn pending_samples(&self, samples_per_prompt: u32) -> u32 {
        if self.phase == Phase::Loading {
            return samples_per_prompt;
        }
        let pending = self
            .slots
            .iter()
            .filter(|slot| matches!(slot.state, SlotState::Queued | SlotState::Running))
            .count();
        u32::try_from(pending).unwrap_or(u32::MAX)
    }
}
