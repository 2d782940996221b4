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
//! Where the router renders prompts itself, messages say what continues what before anything is generated ([`Forest::prepare`],
//! [`Forest::commit_at`]): a *line* goes one step back at most, a *tree* branches anywhere ([`Shape`]).
//!
//! Guarantees: nothing is ever dropped from the forest; a commit that was prepared before the session was closed is refused.

mod attach;
mod delta;
mod inherit;
mod line;
mod record;
mod replay;
mod stored;
mod tree;
mod turn;

pub use inherit::{CommitError, Position, PrepareError, Rules};
pub use line::{Break, Line};
pub use replay::Replay;
pub use stored::StoredError;
pub use tree::{Leaf, Shape};
pub use turn::{Edge, Parent, Turn, TurnContext, TurnId};

use std::sync::Arc;

use attach::Attachment;
use delta::{Delta, Link, pieces};

use crate::reply::{Generation, KnownPrompt};

/// A turn that was prepared before the session was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the session was closed while the turn was being generated")]
pub struct StaleEpoch;

/// All turns of one session.
#[derive(Debug, Default)]
pub struct Forest {
    turns: Vec<Turn>,
    shape: Shape,
    /// The last turn of the conversation as it is now: what was committed last, or where a tree or a line went back to.
    head: Option<TurnId>,
    /// The prompt of the head as the engine wrote it.
    head_text: Option<Arc<str>>,
    epoch: u64,
    heap_bytes: usize,
    max_trim: usize,
}

impl Forest {
    /// An empty forest in which token ids say what continues what. `max_trim` tokens at the end of an output may be missing in the next prompt (templates that do not repeat
    /// the stop token); they are then cut from the sample.
    pub fn new(max_trim: usize) -> Self {
        Self {
            max_trim,
            ..Self::default()
        }
    }

    /// An empty forest of another shape.
    pub fn of_shape(shape: Shape, max_trim: usize) -> Self {
        Self {
            shape,
            ..Self::new(max_trim)
        }
    }

    /// What continues what, and which turns count.
    pub fn shape(&self) -> Shape {
        self.shape
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

    /// The last turn of the conversation as it is now.
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
        self.id_pieces(id, wanted).concat()
    }

    /// The first ids of a turn, in pieces.
    fn id_pieces(&self, id: TurnId, wanted: usize) -> Vec<&[u32]> {
        let link = |index: usize| {
            let turn = &self.turns[index];
            Link {
                shared: turn.prompt.shared(),
                own: [turn.prompt.own(), &turn.output],
                parent: turn.parent_index(),
            }
        };
        pieces(id.index(), wanted, link)
    }

    /// Leading tokens that a turn's prompt has in common with its parent.
    pub fn shared_with_parent(&self, id: TurnId) -> usize {
        self.turn(id).map_or(0, |turn| turn.prompt.shared())
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

    /// Records a turn that was prepared in `epoch`. In a line or a tree it stands alone, beside the conversation: messages would have
    /// said where it belongs.
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

    fn record(&mut self, generation: Generation, context: TurnContext<'_>) -> TurnId {
        if self.shape != Shape::Recorded {
            let alone = Attachment {
                parent: None,
                shared: 0,
            };
            return self.add(alone, 0, generation, context);
        }
        let attached = self.attach(&generation.prompt_ids, context.messages);
        let prompt_text = context.prompt_text;
        let id = self.add(attached, 0, generation, context);
        self.head = Some(id);
        self.set_head_text(prompt_text);
        id
    }

    /// Adds a turn below its parent. The first `known` messages of its request are those of the parent's conversation.
    fn add(
        &mut self,
        attached: Attachment,
        known: usize,
        mut generation: Generation,
        context: TurnContext<'_>,
    ) -> TurnId {
        let Attachment { parent, shared } = attached;
        let parent_turn = parent.map(|parent| parent.turn);
        let prompt_ids = std::mem::take(&mut generation.prompt_ids);
        let hold = |replay, payload| self.hold_payload(parent_turn, replay, payload);
        let experts = hold(Replay::RoutedExperts, generation.routed_experts.take());
        let indexer = hold(Replay::IndexerTopK, generation.indexer_topk.take());
        let request = self.hold_request(parent_turn, known, &context);
        if let Some(pieces) = &mut generation.pieces {
            pieces.shrink();
        }
        let turn = Turn {
            parent,
            prompt: Delta::new(shared, &prompt_ids),
            output: std::mem::take(&mut generation.output_ids).into(),
            log_probs: std::mem::take(&mut generation.log_probs).into(),
            request: request.head,
            request_tail: request.tail,
            first_message: request.first_message,
            new_messages: request.new_messages,
            answer: request.answer,
            conversation: request.conversation,
            experts,
            indexer,
            generation,
            messages: context.messages,
            sent_ids: context.sent_ids,
            experts_start: context.experts_start,
            response: context.response.into(),
            requested_at: context.requested_at,
            answered_at: context.answered_at,
        };
        self.push(turn)
    }

    fn push(&mut self, turn: Turn) -> TurnId {
        self.heap_bytes += turn.heap_bytes();
        let id = TurnId(u32::try_from(self.turns.len()).unwrap_or(u32::MAX));
        self.turns.push(turn);
        id
    }
}
