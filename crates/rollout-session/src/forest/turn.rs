//! One turn: what it adds to its parent.

use std::ops::Range;

use super::delta::Delta;
use super::replay::Payload;
use crate::reply::{Generation, Pieces};
use crate::sample::SampleStatus;

/// Number of a turn within its session, in the order of commits, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(pub(super) u32);

impl TurnId {
    /// The number.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a turn continues another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// Its prompt starts with everything that the parent has.
    Extends,
    /// It came after the parent, but its prompt differs somewhere within what the parent has.
    Breaks,
}

/// The edge from a turn to its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The parent.
    pub turn: TurnId,
    /// How it is continued.
    pub edge: Edge,
}

/// What is recorded beside the tokens of a turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnContext<'a> {
    /// Number of messages of the request, if it had messages.
    pub messages: Option<usize>,
    /// Where the messages lie in `request`; may be empty where nobody compares messages.
    pub message_spans: &'a [Range<usize>],
    /// Request body as the engine got it, without `input_ids` where `sent_ids` says so.
    pub request: &'a [u8],
    /// The engine also got the prompt's ids, as `input_ids`.
    pub sent_ids: bool,
    /// First row of routed experts that the request asked for.
    pub experts_start: Option<usize>,
    /// Reply body without what is held in binary form.
    pub response: Vec<u8>,
    /// The list of prompt ids as the engine wrote it, without brackets.
    pub prompt_text: Option<&'a str>,
    /// When the request arrived, in seconds of Unix time.
    pub requested_at: f64,
    /// When the engine had answered, in seconds of Unix time.
    pub answered_at: f64,
}

/// One recorded turn.
#[derive(Debug)]
pub struct Turn {
    pub(super) parent: Option<Parent>,
    pub(super) prompt: Delta<u32>,
    pub(super) output: Box<[u32]>,
    pub(super) log_probs: Box<[f64]>,
    /// The request up to the end of its messages, and what follows them: each is most often that of the parent with a piece more.
    pub(super) request: Delta<u8>,
    pub(super) request_tail: Delta<u8>,
    /// Where the first message of the request begins.
    pub(super) first_message: usize,
    /// The messages after those of the parent, in what this turn holds of its request.
    pub(super) new_messages: Box<[Range<usize>]>,
    /// The generated message, in `response`.
    pub(super) answer: Option<Range<usize>>,
    /// Messages of the conversation up to and with the generated one.
    pub(super) conversation: usize,
    pub(super) experts: Payload,
    pub(super) indexer: Payload,
    /// All but the vectors, which are empty here.
    pub(crate) generation: Generation,
    pub(crate) messages: Option<usize>,
    pub(crate) sent_ids: bool,
    pub(crate) experts_start: Option<usize>,
    pub(crate) response: Box<[u8]>,
    pub(crate) requested_at: f64,
    pub(crate) answered_at: f64,
}

impl Turn {
    /// The edge to the parent; `None` for the first turn of a conversation.
    pub fn parent(&self) -> Option<Parent> {
        self.parent
    }

    pub(super) fn parent_index(&self) -> Option<usize> {
        self.parent.map(|parent| parent.turn.index())
    }

    /// Number of messages of the request, if it had messages.
    pub fn messages(&self) -> Option<usize> {
        self.messages
    }

    /// Output ids.
    pub fn output_ids(&self) -> &[u32] {
        &self.output
    }

    /// Log-probability of each output id.
    pub fn log_probs(&self) -> &[f64] {
        &self.log_probs
    }

    /// Number of prompt tokens.
    pub fn prompt_len(&self) -> usize {
        self.prompt.len()
    }

    /// Number of prompt and output tokens.
    pub fn total(&self) -> usize {
        self.prompt.len() + self.output.len()
    }

    /// Text of the output tokens, if the engine sent it.
    pub fn pieces(&self) -> Option<&Pieces> {
        self.generation.pieces.as_ref()
    }

    /// How a sample ends that ends with this turn.
    pub fn status(&self) -> SampleStatus {
        self.generation.status()
    }

    /// The reply without the parts that are held in binary form.
    pub fn response(&self) -> &[u8] {
        &self.response
    }

    /// When the request arrived and when it was answered, in seconds of Unix time.
    pub fn times(&self) -> (f64, f64) {
        (self.requested_at, self.answered_at)
    }

    /// The messages that this turn adds to its parent's conversation: those of its request, then the generated one.
    pub(super) fn added_messages(&self) -> impl Iterator<Item = &[u8]> {
        let own = self.request.own();
        let asked = self
            .new_messages
            .iter()
            .map(move |span| own.get(span.clone()));
        let answer = self.answer.clone().map(|span| self.response.get(span));
        asked.chain(answer).map(Option::unwrap_or_default)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.prompt.heap_bytes()
            + size_of_val(&*self.output)
            + size_of_val(&*self.log_probs)
            + self.request.heap_bytes()
            + self.request_tail.heap_bytes()
            + size_of_val(&*self.new_messages)
            + self.experts.heap_bytes()
            + self.indexer.heap_bytes()
            + self.response.len()
            + self.pieces().map_or(0, Pieces::heap_bytes)
    }
}
