//! Which pods of a job's slots may speak. Pure.

use std::collections::HashMap;

/// What is known of one slot.
#[derive(Debug, Default)]
struct Slot {
    /// The newest generation that has spoken.
    seen: u64,
    /// The newest generation whose pod is known to be gone.
    ended: Option<u64>,
}

/// Why a pod may not claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// The slot has this newer generation.
    #[error("{0} was seen")]
    Replaced(u64),
    /// Somebody said that the pod of this generation is gone.
    #[error("the pod of {0} has ended")]
    Ended(u64),
}

/// The slots of a job.
#[derive(Debug, Default)]
pub(crate) struct Slots(HashMap<String, Slot>);

impl Slots {
    /// Checks that a pod is the newest of its slot, which it then is.
    pub(crate) fn admit(&mut self, slot: &str, generation: u64) -> Result<(), Stale> {
        let known = self.0.entry(slot.to_owned()).or_default();
        if let Some(ended) = known.ended.filter(|ended| generation <= *ended) {
            return Err(Stale::Ended(ended));
        }
        if generation < known.seen {
            return Err(Stale::Replaced(known.seen));
        }
        known.seen = generation;
        Ok(())
    }

    /// The pod of this generation, and those before it, are gone.
    pub(crate) fn end(&mut self, slot: &str, generation: u64) {
        let known = self.0.entry(slot.to_owned()).or_default();
        known.ended = known.ended.max(Some(generation));
    }
}

#[cfg(test)]
mod tests {
    use super::{Slots, Stale};

    #[test]
    fn the_newest_generation_that_has_not_ended_may_speak() {
        let mut slots = Slots::default();
        assert_eq!(slots.admit("3", 7), Ok(()));
        assert_eq!(slots.admit("3", 6), Err(Stale::Replaced(7)));
        assert_eq!(slots.admit("4", 1), Ok(()));
        slots.end("3", 7);
        slots.end("3", 5);
        assert_eq!(slots.admit("3", 7), Err(Stale::Ended(7)));
        assert_eq!(slots.admit("3", 6), Err(Stale::Ended(7)));
        assert_eq!(slots.admit("3", 8), Ok(()));
        assert_eq!(slots.admit("4", 1), Ok(()));
    }

    #[test]
    fn a_pod_that_never_spoke_can_end_too() {
        let mut slots = Slots::default();
        slots.end("0", u64::MAX);
        assert_eq!(slots.admit("0", u64::MAX), Err(Stale::Ended(u64::MAX)));
        slots.end("1", 0);
        assert_eq!(slots.admit("1", 0), Err(Stale::Ended(0)));
        assert_eq!(slots.admit("1", 1), Ok(()));
    }
}
