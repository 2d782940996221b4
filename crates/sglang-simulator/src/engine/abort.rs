//! Aborts by id and of everything.

use std::ops::Bound;

use super::{Engine, State};
use crate::scheduler::{Key, Nanos};

impl Engine {
    /// Aborts what SGLang would: nothing unless `rid` itself is in flight, then everything whose id begins with it. The fork's
    /// `prefix` skips the first check.
    pub(crate) fn abort(&self, rid: &str, prefix: bool) {
        self.act(|state, now| {
            if rid.is_empty() || !(prefix || state.rids.contains_key(rid)) {
                return;
            }
            let from = (Bound::Included(rid), Bound::Unbounded);
            let begin_alike = state
                .rids
                .range::<str, _>(from)
                .take_while(|(known, _)| known.starts_with(rid));
            let keys = begin_alike.map(|(_, key)| *key).collect();
            state.abort_keys(keys, now);
        });
    }

    /// Aborts everything that the scheduler has; what waits at the gate is not found.
    pub(crate) fn abort_all(&self) {
        self.act(|state, now| {
            let keys = state.entries.keys().copied().collect();
            state.abort_keys(keys, now);
        });
    }
}

impl State {
    fn abort_keys(&mut self, mut keys: Vec<Key>, now: Nanos) {
        keys.sort_unstable();
        for key in keys {
            self.scheduler.abort(key, now);
        }
    }
}
