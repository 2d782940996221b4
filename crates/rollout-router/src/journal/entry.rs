//! Entries, and their form as rows.

use sha2::{Digest, Sha256};

use crate::id::HexId;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A session begins.
    SessionCreated {
        /// Its id.
        session: HexId,
        /// Whatever it takes to make it again.
        spec: Vec<u8>,
    },
    /// A request is about to leave for an engine.
    RequestSent {
        /// Of this session.
        session: HexId,
        /// The id by which the engine knows it.
        rid: HexId,
        /// The engine's address.
        engine: String,
    },
    /// A request has ended, and nothing is recorded of it.
    RequestOver {
        /// Of this session.
        session: HexId,
        /// Its id.
        rid: HexId,
    },
    /// A turn was committed; its request is over.
    TurnCommitted {
        /// Of this session.
        session: HexId,
        /// Its number within the session, from 0.
        number: u32,
        /// The id of its request.
        rid: HexId,
        /// The turn as bytes.
        turn: Vec<u8>,
    },
    /// A session takes no more turns; it can still be collected.
    SessionEnded {
        /// Its id.
        session: HexId,
        /// Whatever is to be known of its end.
        outcome: Vec<u8>,
    },
    /// A session is gone, with everything that is here of it.
    SessionRemoved {
        /// Its id.
        session: HexId,
    },
}

impl Entry {
    /// The session that it is about.
    pub fn session(&self) -> HexId {
        match self {
            Self::SessionCreated { session, .. }
            | Self::RequestSent { session, .. }
            | Self::RequestOver { session, .. }
            | Self::TurnCommitted { session, .. }
            | Self::SessionEnded { session, .. }
            | Self::SessionRemoved { session } => *session,
        }
    }

    /// Bytes that wait in memory until it is written.
    pub(super) fn weight(&self) -> usize {
        let own = match self {
            Self::SessionCreated { spec, .. } => spec.len(),
            Self::RequestSent { engine, .. } => engine.len(),
            Self::TurnCommitted { turn, .. } => turn.len(),
            Self::SessionEnded { outcome, .. } => outcome.len(),
            Self::RequestOver { .. } | Self::SessionRemoved { .. } => 0,
        };
        own + size_of::<Self>()
    }
}

/// What a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Created,
    Sent,
    Turn,
    Ended,
}

impl Kind {
    pub(super) fn code(self) -> i64 {
        match self {
            Self::Created => 1,
            Self::Sent => 2,
            Self::Turn => 3,
            Self::Ended => 4,
        }
    }

    pub(super) fn of(code: i64) -> Option<Self> {
        [Self::Created, Self::Sent, Self::Turn, Self::Ended]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) session: HexId,
    pub(super) number: u32,
    pub(super) rid: Option<HexId>,
    pub(super) body: Vec<u8>,
}

impl Row {
    /// A sum over everything in it: SQLite does not look at what it keeps.
    pub(super) fn sum(&self) -> i64 {
        let mut hash = Sha256::new();
        hash.update(self.kind.code().to_le_bytes());
        hash.update(self.session.as_str());
        hash.update(self.number.to_le_bytes());
        let rid = self.rid.as_ref().map_or("", HexId::as_str);
        hash.update([u8::from(self.rid.is_some())]);
        hash.update(rid);
        hash.update(&self.body);
        let digest = hash.finalize();
        digest
            .first_chunk()
            .map_or(0, |first| i64::from_le_bytes(*first))
    }
}
