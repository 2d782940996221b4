//! The turns of a session: a forest of generations.
//!
//! A turn holds what it adds to its parent: the ids of its prompt beyond what the parent already has, its output, its request beyond
//! the parent's request. History is therefore stored once, however many turns repeat it. Which turn is whose parent is decided by
//! token ids when a turn is committed (`attach`); which turns make training samples is decided at collection (`line`).
//!
//! ```text
//!   turn 1 --extends--> turn 2 --extends--> turn 3      one run: the prompt of each starts with everything before it
//!             \--extends--> turn 2'                     a retry: of siblings the one that went on is used
//!   turn 3 ==breaks==> turn 4                           the template changed history: a new run, the drift is counted
//! ```
//!
//! Guarantees: nothing is ever dropped from the forest; a commit that was prepared before the session was closed is refused.

mod attach;
mod delta;
mod line;

pub use line::{Break, Line};

use std::sync::Arc;

use delta::{Delta, Link, common_prefix_of_pieces, pieces};

use crate::reply::{Generation, KnownPrompt, Pieces};
use crate::sample::SampleStatus;

/// Number of a turn within its session, in the order of commits, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnId(u32);

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
    /// Request body as the engine got it.
    pub request: &'a [u8],
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
    parent: Option<Parent>,
    prompt: Delta<u32>,
    output: Box<[u32]>,
    log_probs: Box<[f64]>,
    request: Delta<u8>,
    /// All but the vectors, which are empty here.
    pub(crate) generation: Generation,
    pub(crate) messages: Option<usize>,
    pub(crate) response: Box<[u8]>,
    pub(crate) requested_at: f64,
    pub(crate) answered_at: f64,
}

impl Turn {
    /// The edge to the parent; `None` for the first turn of a conversation.
    pub fn parent(&self) -> Option<Parent> {
        self.parent
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

    fn heap_bytes(&self) -> usize {
        self.prompt.heap_bytes()
            + size_of_val(&*self.output)
            + size_of_val(&*self.log_probs)
            + self.request.heap_bytes()
            + self.response.len()
            + self.pieces().map_or(0, Pieces::heap_bytes)
    }
}

/// A turn that was prepared before the session was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session was closed while the turn was being generated")]
pub struct StaleEpoch;

/// All turns of one session.
#[derive(Debug, Default)]
pub struct Forest {
    turns: Vec<Turn>,
    head: Option<TurnId>,
    /// The prompt of the head as the engine wrote it.
    head_text: Option<Arc<str>>,
    epoch: u64,
    heap_bytes: usize,
    max_trim: usize,
}

impl Forest {
    /// An empty forest. `max_trim` tokens at the end of an output may be missing in the next prompt (templates that do not repeat
    /// the stop token); they are then cut from the sample.
    pub fn new(max_trim: usize) -> Self {
        Self {
            max_trim,
            ..Self::default()
        }
    }

    /// The epoch that a turn remembers when it is prepared.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Refuses the commit of every turn that is being generated now.
    pub fn close(&mut self) {
        self.epoch += 1;
        self.set_head_text(None);
    }

    /// The prompt of the turn that was committed last; the next one likely begins with it.
    pub fn known_prompt(&self) -> Option<KnownPrompt> {
        Some(KnownPrompt {
            text: Arc::clone(self.head_text.as_ref()?),
            ids: self.prompt_ids(self.head?),
        })
    }

    fn set_head_text(&mut self, text: Option<&str>) {
        let bytes = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        self.heap_bytes -= bytes(&self.head_text);
        self.head_text = text.map(Arc::from);
        self.heap_bytes += bytes(&self.head_text);
    }

    /// Number of turns.
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    /// Whether there is no turn.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Bytes that the records occupy.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// How many trailing output tokens the next prompt may lack.
    pub fn max_trim(&self) -> usize {
        self.max_trim
    }

    /// The turn that was committed last.
    pub fn head(&self) -> Option<TurnId> {
        self.head
    }

    /// A turn.
    pub fn turn(&self, id: TurnId) -> Option<&Turn> {
        self.turns.get(id.index())
    }

    /// All turns in the order of their commits.
    pub fn turns(&self) -> impl Iterator<Item = (TurnId, &Turn)> {
        (0..).map(TurnId).zip(&self.turns)
    }

    /// Prompt and output ids of a turn.
    pub fn ids(&self, id: TurnId) -> Vec<u32> {
        let wanted = self.turn(id).map_or(0, Turn::total);
        self.leading_ids(id, wanted)
    }

    /// Prompt ids of a turn.
    pub fn prompt_ids(&self, id: TurnId) -> Vec<u32> {
        let wanted = self.turn(id).map_or(0, Turn::prompt_len);
        self.leading_ids(id, wanted)
    }

    fn leading_ids(&self, id: TurnId, wanted: usize) -> Vec<u32> {
        let link = |index: usize| {
            let turn = &self.turns[index];
            Link {
                shared: turn.prompt.shared(),
                own: [turn.prompt.own(), &turn.output],
                parent: parent_index(turn),
            }
        };
        pieces(id.index(), wanted, link).concat()
    }

    /// Leading tokens that a turn's prompt has in common with its parent.
    pub fn shared_with_parent(&self, id: TurnId) -> usize {
        self.turn(id).map_or(0, |turn| turn.prompt.shared())
    }

    /// Request body of a turn, as the engine got it.
    pub fn request(&self, id: TurnId) -> Vec<u8> {
        self.request_pieces(id).concat()
    }

    fn request_pieces(&self, id: TurnId) -> Vec<&[u8]> {
        let wanted = self.turn(id).map_or(0, |turn| turn.request.len());
        pieces(id.index(), wanted, |index| {
            let turn = &self.turns[index];
            Link {
                shared: turn.request.shared(),
                own: [turn.request.own(), &[]],
                parent: parent_index(turn),
            }
        })
    }

    /// Lower bound of the tokens that a request with `messages` messages will have in its prompt: a request that is longer than
    /// the last one repeats it and its answer.
    pub fn known_prompt_tokens(&self, messages: Option<usize>) -> usize {
        let Some(messages) = messages else { return 0 };
        let mut turn = self.head;
        while let Some(at) = turn.and_then(|id| self.turn(id)) {
            if at.messages.is_some_and(|earlier| earlier < messages) {
                return at.total();
            }
            turn = at.parent.map(|parent| parent.turn);
        }
        0
    }

    /// Records a turn that was prepared in `epoch`.
    ///
    /// # Errors
    /// The session was closed in between.
    pub fn commit(
        &mut self,
        epoch: u64,
        generation: Generation,
        context: TurnContext<'_>,
    ) -> Result<TurnId, StaleEpoch> {
        if epoch != self.epoch {
            return Err(StaleEpoch);
        }
        Ok(self.record(generation, context))
    }

    fn record(&mut self, mut generation: Generation, context: TurnContext<'_>) -> TurnId {
        let prompt_ids = std::mem::take(&mut generation.prompt_ids);
        let attached = self.attach(&prompt_ids, context.messages);
        let request_shared = attached.parent.map_or(0, |parent| {
            common_prefix_of_pieces(&self.request_pieces(parent.turn), context.request)
        });
        let turn = Turn {
            parent: attached.parent,
            prompt: Delta::new(attached.shared, &prompt_ids),
            output: std::mem::take(&mut generation.output_ids).into(),
            log_probs: std::mem::take(&mut generation.log_probs).into(),
            request: Delta::new(request_shared, context.request),
            generation,
            messages: context.messages,
            response: context.response.into(),
            requested_at: context.requested_at,
            answered_at: context.answered_at,
        };
        self.heap_bytes += turn.heap_bytes();
        let id = TurnId(u32::try_from(self.turns.len()).unwrap_or(u32::MAX));
        self.turns.push(turn);
        self.head = Some(id);
        self.set_head_text(context.prompt_text);
        id
    }
}

fn parent_index(turn: &Turn) -> Option<usize> {
    turn.parent.map(|parent| parent.turn.index())
}
