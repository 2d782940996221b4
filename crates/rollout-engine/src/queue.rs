//! Slots that wait for their turn: in order of arrival, refills after their pause.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::ids::SampleKey;

#[derive(Debug, Default)]
pub(crate) struct SampleQueue {
    ready: VecDeque<SampleKey>,
    paused: BinaryHeap<Reverse<(Duration, SampleKey)>>,
}

impl SampleQueue {
    pub(crate) fn push(&mut self, key: SampleKey) {
        self.ready.push_back(key);
    }

    pub(crate) fn push_at(&mut self, key: SampleKey, due: Duration) {
        self.paused.push(Reverse((due, key)));
    }

    /// The next one that may start. Refills whose pause is over go first: their group waits for them.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<SampleKey> {
        if let Some(Reverse((due, key))) = self.paused.peek().copied()
            && due <= now
        {
            self.paused.pop();
            return Some(key);
        }
        self.ready.pop_front()
    }

    /// When the next pause is over.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.paused.peek().map(|Reverse((due, _))| *due)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.paused.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.ready.clear();
        self.paused.clear();
    }
}
