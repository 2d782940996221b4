//! Which requests were asked, and which turns answered them.
//!
//! An SDK that lost an answer on its way asks again, and says so; nobody can see from here whether an answer that was sent has arrived. So a
//! request that says that it is a repetition gets the turn that is recorded for it. Equal requests of agents that want several answers
//! (best of n) are different turns: where the same was asked several times by itself, nobody knows whose answer was lost, and a
//! repetition is a new turn.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use bytes::Bytes;
use foldhash::quality::RandomState;
use http::HeaderValue;
use rollout_session::TurnId;

/// Requests that are remembered: clients repeat the latest ones.
const KEPT: usize = 16;

/// What makes two requests the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestIdentity {
    idempotency_key: Option<HeaderValue>,
    body: Bytes,
    pub(crate) digest: Digest,
}

/// A short form of a request, for when it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest {
    hash: u64,
    length: usize,
}

impl RequestIdentity {
    pub(crate) fn new(idempotency_key: Option<&HeaderValue>, body: Bytes) -> Self {
        // With a random seed: nobody can make two requests that look the same. Fast, since it reads every body.
        static HASHER: OnceLock<RandomState> = OnceLock::new();
        let hasher = HASHER.get_or_init(RandomState::default);
        let key = idempotency_key.map(HeaderValue::as_bytes);
        Self {
            idempotency_key: idempotency_key.cloned(),
            digest: Digest {
                hash: hasher.hash_one((key, &body[..])),
                length: body.len(),
            },
            body,
        }
    }
}

/// What a request says about being a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Nothing.
    None,
    /// It has a key: it is the same request as any other one with that key.
    Key,
    /// It is one.
    Retry,
}

/// The latest requests of a session.
#[derive(Debug, Default)]
pub(crate) struct Asked(VecDeque<Entry>);

#[derive(Debug)]
struct Entry {
    digest: Digest,
    /// How often it was asked by itself, not as a repetition.
    firsts: u32,
    turn: Option<TurnId>,
}

impl Asked {
    /// A request starts a turn.
    pub(crate) fn asked(&mut self, digest: Digest, evidence: Evidence) {
        if let Some(entry) = self.find(digest) {
            if evidence == Evidence::None {
                entry.firsts = entry.firsts.saturating_add(1);
            }
            return;
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Entry {
            digest,
            firsts: 1,
            turn: None,
        });
    }

    /// The turn of a request is recorded.
    pub(crate) fn answered(&mut self, digest: Digest, turn: TurnId) {
        if let Some(entry) = self.find(digest) {
            entry.turn = Some(turn);
        }
    }

    /// The turn that answers a repetition, when there is no doubt whose it is.
    pub(crate) fn answer_of(&self, digest: Digest) -> Option<TurnId> {
        let entry = self.0.iter().find(|entry| entry.digest == digest)?;
        entry.turn.filter(|_| entry.firsts == 1)
    }

    fn find(&mut self, digest: Digest) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.digest == digest)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;
    use rollout_session::{Forest, Generation, TurnContext, TurnId};

    use super::{Asked, Digest, Evidence, KEPT, RequestIdentity};

    fn digest(key: Option<&'static str>, body: &'static str) -> Digest {
        let key = key.map(HeaderValue::from_static);
        RequestIdentity::new(key.as_ref(), Bytes::from(body)).digest
    }

    fn turn() -> TurnId {
        let commit = Forest::new(0).commit(0, Generation::default(), TurnContext::default());
        commit.unwrap()
    }

    #[test]
    fn a_digest_is_of_key_and_body() {
        assert_eq!(digest(None, "a"), digest(None, "a"));
        assert_ne!(digest(None, "a"), digest(None, "b"));
        assert_ne!(digest(None, "a"), digest(Some("k"), "a"));
        assert_ne!(digest(Some("l"), "a"), digest(Some("k"), "a"));
    }

    #[test]
    fn what_was_asked_once_is_answered_again() {
        let mut asked = Asked::default();
        let (one, other) = (digest(None, "a"), digest(None, "b"));
        assert_eq!(asked.answer_of(one), None);
        asked.asked(one, Evidence::None);
        assert_eq!(asked.answer_of(one), None);
        // Its first try failed; the repetition is no other request.
        asked.asked(one, Evidence::Retry);
        asked.answered(one, turn());
        assert_eq!(asked.answer_of(one), Some(turn()));
        assert_eq!(asked.answer_of(other), None);
        asked.asked(one, Evidence::None);
        assert_eq!(asked.answer_of(one), None);
    }

    #[test]
    fn the_latest_are_kept() {
        let mut asked = Asked::default();
        let first = digest(None, "first");
        asked.asked(first, Evidence::None);
        asked.answered(first, turn());
        for length in 0..KEPT {
            assert_eq!(asked.answer_of(first), Some(turn()));
            let body = Bytes::from(vec![b'x'; length]);
            asked.asked(RequestIdentity::new(None, body).digest, Evidence::None);
        }
        assert_eq!(asked.answer_of(first), None);
    }
}
