//! The waiting queue: first come, first served, with a front door for those that were running, and removal from its middle.

use std::collections::BTreeMap;

use super::Key;

/// Place of a request in the queue.
pub(super) type Place = i64;

#[derive(Debug, Default)]
pub(super) struct Queue {
    places: BTreeMap<Place, Key>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn front(&self) -> Option<Key> {
        self.places.first_key_value().map(|(_, key)| *key)
    }

    pub(super) fn pop_front(&mut self) {
        self.places.pop_first();
    }

    pub(super) fn push_back(&mut self, key: Key) -> Place {
        let place = self.places.last_key_value().map_or(0, |(last, _)| last + 1);
        self.places.insert(place, key);
        place
    }

    pub(super) fn push_front(&mut self, key: Key) -> Place {
        let place = self
            .places
            .first_key_value()
            .map_or(0, |(first, _)| first - 1);
        self.places.insert(place, key);
        place
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.places.remove(&place);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Key> {
        self.places.values()
    }
}
