//! Paths, leaves, and what a tree looks like from outside.

use serde_json::{Value, json};

use super::{Forest, Turn, TurnId};
use crate::messages::reply_id;
use crate::reply::FinishReason;

/// What continues what, and which turns make samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// Token ids tell it after the engine has answered. Samples are made of runs; see [`Line`](super::Line).
    #[default]
    Recorded,
    /// Messages tell it; a request goes one answer back at most. One conversation makes one sample.
    Line,
    /// Messages tell it; a request continues the longest conversation that it begins with. Every leaf makes a sample.
    Tree,
}

/// A turn that nothing continues, and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The turn.
    pub turn: TurnId,
    /// From the first turn of the conversation to this one.
    pub path: Vec<TurnId>,
}

impl Forest {
    /// The turns from the first one of a conversation to `turn`.
    pub fn path(&self, turn: Option<TurnId>) -> Vec<TurnId> {
        let parent = |id: &TurnId| Some(self.turn(*id)?.parent?.turn);
        let mut path: Vec<TurnId> = std::iter::successors(turn, parent).collect();
        path.reverse();
        path
    }

    /// Turns that nothing continues, in the order of their commits.
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut is_leaf = vec![true; self.len()];
        for parent in self.turns.iter().filter_map(Turn::parent_index) {
            is_leaf[parent] = false;
        }
        self.turns()
            .filter(|(id, _)| is_leaf[id.index()])
            .map(|(id, _)| Leaf {
                turn: id,
                path: self.path(Some(id)),
            })
            .collect()
    }

    /// The turn that was committed last among those with the same parent. `None` for the first turn of a conversation.
    pub(crate) fn latest_sibling(&self, id: TurnId) -> Option<TurnId> {
        let parent = self.turn(id)?.parent?.turn;
        self.turns()
            .filter(|(_, turn)| turn.parent.is_some_and(|other| other.turn == parent))
            .map(|(id, _)| id)
            .last()
    }

    /// The id that the engine gave a turn's reply, or an empty text.
    pub fn response_id(&self, id: TurnId) -> String {
        let body = self.turn(id).map(Turn::response).unwrap_or_default();
        reply_id(std::str::from_utf8(body).unwrap_or_default())
    }

    /// Nodes and leaves, as a session's metadata has them.
    pub fn tree_metadata(&self) -> Value {
        let number = |id: &TurnId| id.index();
        let nodes: Vec<Value> = self
            .turns()
            .map(|(id, turn)| {
                json!({
                    "id": id.index(),
                    "parent": turn.parent_index(),
                    "seq": id.index(),
                    "truncated": turn.generation.finish == Some(FinishReason::Length),
                    "committed_at": turn.answered_at,
                    "completion_span": [turn.prompt_len(), turn.total()],
                    "num_tokens": turn.total(),
                    "response_id": self.response_id(id),
                })
            })
            .collect();
        let leaves: Vec<Value> = self
            .leaves()
            .iter()
            .map(|leaf| {
                let path: Vec<usize> = leaf.path.iter().map(number).collect();
                json!({"node_id": leaf.turn.index(), "path_node_ids": path})
            })
            .collect();
        json!({"nodes": nodes, "leaves": leaves})
    }
}
