//! The linear view: which turns make samples, and where they break.

use super::{Edge, Forest, Parent, Turn, TurnId};

/// A place where a prompt does not start with everything before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Break {
    /// Number of the turn whose prompt differs, from 1.
    pub turn: usize,
    /// Leading tokens that it shares with what came before.
    pub shared: usize,
    /// Tokens that came before.
    pub expected: usize,
}

/// The linear view of a forest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// Each run is a chain of turns, each of which extends the one before.
    pub runs: Vec<Vec<TurnId>>,
    /// Where the runs were separated.
    pub breaks: Vec<Break>,
    /// Turns that were answered again and not continued.
    pub superseded: usize,
}

impl Forest {
    /// The linear view. Of turns that continue the same turn, or repeat the same request, the one with the longest continuation is
    /// used, of equals the latest.
    pub fn line(&self) -> Line {
        let depth = self.depths();
        let better = |left: TurnId, right: TurnId| {
            if (depth[left.index()], left) > (depth[right.index()], right) {
                left
            } else {
                right
            }
        };
        let mut next: Vec<Option<TurnId>> = vec![None; self.turns.len()];
        let mut starts: Vec<TurnId> = Vec::new();
        for (id, turn) in self.turns() {
            if let Some(Parent {
                turn: parent,
                edge: Edge::Extends,
            }) = turn.parent
            {
                let slot = &mut next[parent.index()];
                *slot = Some(slot.map_or(id, |other| better(other, id)));
            } else if let Some(slot) = starts.iter_mut().find(|slot| self.are_twins(**slot, id)) {
                *slot = better(*slot, id);
            } else {
                starts.push(id);
            }
        }
        let mut line = Line::default();
        for start in starts {
            let run: Vec<TurnId> =
                std::iter::successors(Some(start), |at| next[at.index()]).collect();
            line.runs.push(run);
        }
        line.breaks = self.breaks(&line.runs);
        line.superseded = self.len() - line.runs.iter().map(Vec::len).sum::<usize>();
        line
    }

    /// Length of the longest chain of extending turns from each turn on.
    fn depths(&self) -> Vec<usize> {
        let mut depth = vec![1; self.turns.len()];
        for (at, turn) in self.turns.iter().enumerate().rev() {
            if let Some(Parent {
                turn: parent,
                edge: Edge::Extends,
            }) = turn.parent
            {
                let parent = parent.index();
                depth[parent] = depth[parent].max(depth[at] + 1);
            }
        }
        depth
    }

    fn are_twins(&self, left: TurnId, right: TurnId) -> bool {
        let (Some(left_turn), Some(right_turn)) = (self.turn(left), self.turn(right)) else {
            return false;
        };
        left_turn.parent == right_turn.parent
            && left_turn.prompt_len() == right_turn.prompt_len()
            && left_turn.prompt == right_turn.prompt
    }

    fn breaks(&self, runs: &[Vec<TurnId>]) -> Vec<Break> {
        let starts = runs.iter().filter_map(|run| run.first());
        starts
            .filter_map(|start| {
                let turn = self.turn(*start)?;
                let parent = turn.parent?;
                Some(Break {
                    turn: start.index() + 1,
                    shared: turn.prompt.shared(),
                    expected: self.turn(parent.turn).map_or(0, Turn::total),
                })
            })
            .collect()
    }
}
