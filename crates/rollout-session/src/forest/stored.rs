//! A turn as bytes, for a journal: what the turn adds to its parent, so that a long conversation is written once.
//!
//! ```text
//!   u8 version | postcard of `Stored`
//! ```
//!
//! Turns are read back in the order of their commits. What is read is checked against the turns that are there already; bytes that do
//! not fit are refused and change nothing.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::delta::Delta;
use super::replay::Payload;
use super::{Edge, Forest, Parent, Turn, TurnId};
use crate::reply::{FinishReason, Generation, Pieces};
use crate::sample::SpecInfo;

/// Of the layout below.
const VERSION: u8 = 1;

/// Why stored bytes are no turn of this session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// Written by another version.
    #[error("stored turn has version {0}, expected {VERSION}")]
    Version(u8),
    /// Not the layout.
    #[error("stored turn cannot be read: {0}")]
    Layout(#[from] postcard::Error),
    /// A field that does not fit the others, or the turns before.
    #[error("stored turn does not fit: {0}")]
    Unfit(&'static str),
}

/// Items of a sequence: how many are the parent's, and the rest.
#[derive(Serialize, Deserialize)]
struct Ids<'a> {
    shared: usize,
    own: Cow<'a, [u32]>,
}

#[derive(Serialize, Deserialize)]
struct Text<'a> {
    shared: usize,
    #[serde(with = "serde_bytes", borrow)]
    own: Cow<'a, [u8]>,
}

#[derive(Serialize, Deserialize)]
enum Rows<'a> {
    Absent,
    #[serde(borrow)]
    Held(Text<'a>),
    Broken(Cow<'a, str>),
}

#[derive(Serialize, Deserialize)]
struct Stored<'a> {
    parent: Option<(u32, bool)>,
    /// The conversation ends with it.
    is_head: bool,
    prompt: Ids<'a>,
    output: Cow<'a, [u32]>,
    log_probs: Cow<'a, [f64]>,
    #[serde(borrow)]
    request: Text<'a>,
    #[serde(borrow)]
    request_tail: Text<'a>,
    first_message: usize,
    new_messages: Cow<'a, [Range<usize>]>,
    answer: Option<Range<usize>>,
    conversation: usize,
    #[serde(borrow)]
    experts: Rows<'a>,
    #[serde(borrow)]
    indexer: Rows<'a>,
    pieces: Option<(Cow<'a, str>, Cow<'a, [u32]>)>,
    finish: Option<Cow<'a, str>>,
    weight_version: Option<Cow<'a, str>>,
    cached_tokens: i64,
    prompt_tokens: i64,
    spec: SpecInfo,
    engine_seconds: Option<f64>,
    indexer_layers: Option<usize>,
    messages: Option<usize>,
    sent_ids: bool,
    experts_start: Option<usize>,
    #[serde(with = "serde_bytes", borrow)]
    response: Cow<'a, [u8]>,
    requested_at: f64,
    answered_at: f64,
}

impl<'a> Text<'a> {
    fn of(delta: &'a Delta<u8>) -> Self {
        Self {
            shared: delta.shared(),
            own: Cow::Borrowed(delta.own()),
        }
    }

    /// The sequence, if the parent has as many items as it shares.
    fn delta(self, of_parent: usize) -> Result<Delta<u8>, StoredError> {
        if self.shared > of_parent {
            return Err(StoredError::Unfit("it shares more than its parent has"));
        }
        Ok(Delta::from_parts(self.shared, self.own.into_owned()))
    }
}

impl<'a> Rows<'a> {
    fn of(payload: &'a Payload) -> Self {
        match payload {
            Payload::Absent => Self::Absent,
            Payload::Rows(rows) => Self::Held(Text::of(rows)),
            Payload::Broken(reason) => Self::Broken(Cow::Borrowed(reason)),
        }
    }

    fn payload(self, of_parent: Option<&Payload>) -> Result<Payload, StoredError> {
        Ok(match self {
            Self::Absent => Payload::Absent,
            Self::Broken(_) => Payload::Broken("could not be read when it came"),
            Self::Held(rows) => {
                let held = of_parent.and_then(Payload::rows).map_or(0, Delta::len);
                Payload::Rows(rows.delta(held)?)
            }
        })
    }
}

impl Forest {
    /// A turn as bytes. `None` when there is no such turn.
    ///
    /// # Errors
    /// The bytes cannot be written.
    pub fn store(&self, id: TurnId) -> Result<Option<Vec<u8>>, StoredError> {
        let Some(turn) = self.turn(id) else {
            return Ok(None);
        };
        let generation = &turn.generation;
        let stored = Stored {
            parent: turn
                .parent
                .map(|parent| (parent.turn.0, parent.edge == Edge::Extends)),
            is_head: self.head == Some(id),
            prompt: Ids {
                shared: turn.prompt.shared(),
                own: Cow::Borrowed(turn.prompt.own()),
            },
            output: Cow::Borrowed(&turn.output),
            log_probs: Cow::Borrowed(&turn.log_probs),
            request: Text::of(&turn.request),
            request_tail: Text::of(&turn.request_tail),
            first_message: turn.first_message,
            new_messages: Cow::Borrowed(&turn.new_messages),
            answer: turn.answer.clone(),
            conversation: turn.conversation,
            experts: Rows::of(&turn.experts),
            indexer: Rows::of(&turn.indexer),
            pieces: generation.pieces.as_ref().map(|pieces| {
                let (text, ends) = pieces.parts();
                (Cow::Borrowed(text), Cow::Borrowed(ends))
            }),
            finish: generation
                .finish
                .as_ref()
                .map(|finish| Cow::Borrowed(finish.name())),
            weight_version: generation.weight_version.as_deref().map(Cow::Borrowed),
            cached_tokens: generation.cached_tokens,
            prompt_tokens: generation.prompt_tokens,
            spec: generation.spec,
            engine_seconds: generation.engine_seconds,
            indexer_layers: generation.indexer_layers,
            messages: turn.messages,
            sent_ids: turn.sent_ids,
            experts_start: turn.experts_start,
            response: Cow::Borrowed(&turn.response),
            requested_at: turn.requested_at,
            answered_at: turn.answered_at,
        };
        Ok(Some(postcard::to_extend(&stored, vec![VERSION])?))
    }

    /// Puts a stored turn back, as the next one.
    ///
    /// # Errors
    /// Why the bytes are not the next turn of this session.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<TurnId, StoredError> {
        let (version, rest) = bytes
            .split_first()
            .ok_or(StoredError::Unfit("it is empty"))?;
        if *version != VERSION {
            return Err(StoredError::Version(*version));
        }
        let stored: Stored<'_> = postcard::from_bytes(rest)?;
        let is_head = stored.is_head;
        let turn = self.turn_of(stored)?;
        let id = self.push(turn);
        if is_head {
            self.head = Some(id);
            self.set_head_text(None);
        }
        Ok(id)
    }

    fn turn_of(&self, stored: Stored<'_>) -> Result<Turn, StoredError> {
        let unfit = |what| Err(StoredError::Unfit(what));
        let parent = stored.parent.map(|(turn, extends)| Parent {
            turn: TurnId(turn),
            edge: if extends { Edge::Extends } else { Edge::Breaks },
        });
        let before = match parent {
            Some(parent) => match self.turn(parent.turn) {
                Some(turn) => Some(turn),
                None => return unfit("its parent is missing"),
            },
            None => None,
        };
        if stored.prompt.shared > before.map_or(0, Turn::total) {
            return unfit("its prompt shares more than its parent has");
        }
        if stored.log_probs.len() != stored.output.len() {
            return unfit("it has not one log-probability for each output id");
        }
        let own = stored.request.own.len();
        if stored
            .new_messages
            .iter()
            .any(|span| span.start > span.end || span.end > own)
            || stored
                .answer
                .as_ref()
                .is_some_and(|span| span.start > span.end || span.end > stored.response.len())
        {
            return unfit("a message lies outside of it");
        }
        if stored.answer.is_some() && stored.conversation == 0 {
            return unfit("its answer is no message");
        }
        let pieces = match stored.pieces {
            Some((text, ends)) => Some(
                Pieces::from_parts(text.into_owned(), ends.into_owned())
                    .ok_or(StoredError::Unfit("the texts of its tokens are cut"))?,
            ),
            None => None,
        };
        Ok(Turn {
            parent,
            prompt: Delta::from_parts(stored.prompt.shared, stored.prompt.own.into_owned()),
            output: stored.output.into_owned().into(),
            log_probs: stored.log_probs.into_owned().into(),
            request: stored
                .request
                .delta(before.map_or(0, |turn| turn.request.len()))?,
            request_tail: stored
                .request_tail
                .delta(before.map_or(0, |turn| turn.request_tail.len()))?,
            first_message: stored.first_message,
            new_messages: stored.new_messages.into_owned().into(),
            answer: stored.answer,
            conversation: stored.conversation,
            experts: stored.experts.payload(before.map(|turn| &turn.experts))?,
            indexer: stored.indexer.payload(before.map(|turn| &turn.indexer))?,
            generation: Generation {
                pieces,
                finish: stored.finish.as_deref().map(FinishReason::parse),
                weight_version: stored.weight_version.map(Cow::into_owned),
                cached_tokens: stored.cached_tokens,
                prompt_tokens: stored.prompt_tokens,
                spec: stored.spec,
                engine_seconds: stored.engine_seconds,
                indexer_layers: stored.indexer_layers,
                ..Generation::default()
            },
            messages: stored.messages,
            sent_ids: stored.sent_ids,
            experts_start: stored.experts_start,
            response: stored.response.into_owned().into(),
            requested_at: stored.requested_at,
            answered_at: stored.answered_at,
        })
    }
}
