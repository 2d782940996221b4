//! Replay payloads: rows of experts or of an index for the trainer, as raw bytes.
//!
//! An engine that answers with the rows of the whole conversation repeats those of the turn before; such rows are held once, as the
//! beginning that a turn shares with its parent.

use super::delta::{Delta, Link, common_prefix_of_pieces, pieces};
use super::{Forest, Turn, TurnId};
use crate::reply::ReplayPayload;

/// A payload as it is held.
#[derive(Debug, Default)]
pub(super) enum Payload {
    #[default]
    Absent,
    Rows(Delta<u8>),
    /// It could not be read; the reason.
    Broken(&'static str),
}

impl Payload {
    pub(super) fn rows(&self) -> Option<&Delta<u8>> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::Absent | Self::Broken(_) => None,
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.rows().map_or(0, Delta::heap_bytes)
    }
}

/// Which payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// The experts that each token was routed to.
    RoutedExperts,
    /// The positions that sparse attention chose.
    IndexerTopK,
}

impl Replay {
    /// The name of the field in replies.
    pub fn field(self) -> &'static str {
        match self {
            Self::RoutedExperts => "routed_experts",
            Self::IndexerTopK => "indexer_topk",
        }
    }

    fn of(self, turn: &Turn) -> &Payload {
        match self {
            Self::RoutedExperts => &turn.experts,
            Self::IndexerTopK => &turn.indexer,
        }
    }
}

impl Forest {
    /// Bytes of a turn's payload. `None` when the engine sent none.
    ///
    /// # Errors
    /// Why what it sent could not be read.
    pub fn replay_len(&self, id: TurnId, replay: Replay) -> Result<Option<usize>, &'static str> {
        match self.turn(id).map(|turn| replay.of(turn)) {
            Some(Payload::Rows(rows)) => Ok(Some(rows.len())),
            Some(Payload::Broken(reason)) => Err(reason),
            Some(Payload::Absent) | None => Ok(None),
        }
    }

    /// The first `length` bytes of a turn's payload, in pieces.
    pub(crate) fn replay_bytes(&self, id: TurnId, replay: Replay, length: usize) -> Vec<&[u8]> {
        pieces(id.index(), length, |index| {
            let turn = &self.turns[index];
            let rows = replay.of(turn).rows();
            Link {
                shared: rows.map_or(0, Delta::shared),
                own: [rows.map_or(&[][..], Delta::own), &[]],
                parent: turn.parent_index(),
            }
        })
    }

    pub(super) fn hold_payload(
        &self,
        parent: Option<TurnId>,
        replay: Replay,
        payload: Option<ReplayPayload>,
    ) -> Payload {
        let bytes = match payload {
            None => return Payload::Absent,
            Some(ReplayPayload::Broken(reason)) => return Payload::Broken(reason),
            Some(ReplayPayload::Rows(bytes)) => bytes,
        };
        let shared = parent.map_or(0, |parent| {
            let length = self.replay_len(parent, replay).ok().flatten();
            let before = self.replay_bytes(parent, replay, length.unwrap_or(0));
            common_prefix_of_pieces(&before, &bytes)
        });
        Payload::Rows(Delta::of(shared, bytes))
    }
}
