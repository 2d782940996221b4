//! Decides which turn a new turn continues.
//!
//! Only token ids prove that a turn continues another one. Where they do not, the number of messages tells a retry (the request is not
//! longer than the one it replaces) from a changed history (it is longer, and repeats an answer in other tokens).

use super::delta::common_prefix;
use super::{Edge, Forest, Parent, TurnId};

/// Where a new turn goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attachment {
    pub(super) parent: Option<Parent>,
    /// Leading prompt ids that the parent has too.
    pub(super) shared: usize,
}

impl Forest {
    pub(super) fn attach(&self, prompt: &[u32], messages: Option<usize>) -> Attachment {
        let matches = self.matches(prompt);
        if let Some(twin) = self.twin(prompt, &matches) {
            let parent = self.turns[twin].parent;
            return Attachment {
                parent,
                shared: parent.map_or(0, |parent| matches[parent.turn.index()].min(prompt.len())),
            };
        }
        let extended = self.deepest_extended(&matches);
        let turn = match (extended, self.head) {
            (_, None) => {
                return Attachment {
                    parent: None,
                    shared: 0,
                };
            }
            (Some(deepest), Some(head)) => {
                if self.is_changed_history(deepest, head, messages) {
                    head
                } else {
                    deepest
                }
            }
            (None, Some(head)) => head,
        };
        let edge = if extended == Some(turn) {
            Edge::Extends
        } else {
            Edge::Breaks
        };
        Attachment {
            parent: Some(Parent { turn, edge }),
            shared: matches[turn.index()],
        }
    }

    /// For each turn, how many leading ids of `prompt` are also its own (prompt and output).
    fn matches(&self, prompt: &[u32]) -> Vec<usize> {
        let mut matches: Vec<usize> = Vec::with_capacity(self.turns.len());
        for turn in &self.turns {
            let shared = turn.prompt.shared();
            let inherited = turn
                .parent
                .map_or(0, |parent| matches[parent.turn.index()].min(shared));
            if inherited < shared {
                matches.push(inherited);
                continue;
            }
            let mut at = shared;
            for own in [turn.prompt.own(), &turn.output] {
                let rest = prompt.get(at..).unwrap_or_default();
                let common = common_prefix(own, rest);
                at += common;
                if common < own.len() {
                    break;
                }
            }
            matches.push(at.min(prompt.len()));
        }
        matches
    }

    /// A turn with exactly this prompt: the same request again.
    fn twin(&self, prompt: &[u32], matches: &[usize]) -> Option<usize> {
        self.turns.iter().enumerate().rev().find_map(|(at, turn)| {
            let same = turn.prompt.len() == prompt.len() && matches[at] >= prompt.len();
            same.then_some(at)
        })
    }

    /// The turn with the most tokens of which the prompt has all; the latest of equals.
    fn deepest_extended(&self, matches: &[usize]) -> Option<TurnId> {
        self.turns()
            .filter(|(id, turn)| {
                let needed = turn.total().saturating_sub(self.max_trim);
                matches[id.index()] >= needed.max(turn.prompt_len())
            })
            .max_by_key(|(id, turn)| (turn.total(), *id))
            .map(|(id, _)| id)
    }

    /// Whether the request continues `head` although its ids only continue `deepest`: every turn in between extends the one before,
    /// and the request has more messages than the last of them.
    fn is_changed_history(&self, deepest: TurnId, head: TurnId, messages: Option<usize>) -> bool {
        if deepest == head {
            return false;
        }
        let mut at = head;
        while at != deepest {
            match self.turn(at).and_then(super::Turn::parent) {
                Some(Parent {
                    turn,
                    edge: Edge::Extends,
                }) => at = turn,
                _ => return false,
            }
        }
        let last = self.turn(head).and_then(|turn| turn.messages);
        match (messages, last) {
            (Some(messages), Some(last)) => messages > last,
            _ => true,
        }
    }
}
