//! Which leaves of a tree become samples, and which of them trains a turn that they share.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use super::merge::PlannedSample;
use crate::forest::{Forest, Leaf, TurnId};

/// Which leaves count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Picker {
    /// A leaf that was answered again is left out. The longest conversation comes first.
    #[default]
    DropRetries,
    /// All leaves, in the order of their commits.
    KeepAll,
}

impl Picker {
    /// The name in flags and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::DropRetries => "drop_retries",
            Self::KeepAll => "keep_all",
        }
    }

    /// Chooses among the samples of a tree's leaves, and says what is odd about it.
    pub(super) fn pick(
        self,
        forest: &Forest,
        material: Vec<PlannedSample>,
    ) -> (Vec<PlannedSample>, Vec<String>) {
        match self {
            Self::KeepAll => (material, Vec::new()),
            Self::DropRetries => drop_retries(forest, material),
        }
    }
}

impl fmt::Display for Picker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no picker has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no sample picker is called {0:?}: there are drop_retries and keep_all")]
pub struct UnknownPicker(pub String);

impl FromStr for Picker {
    type Err = UnknownPicker;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        // A trainer's configuration may have the dotted path of the same function.
        match name.rsplit('.').next() {
            Some("drop_retries") => Ok(Self::DropRetries),
            Some("keep_all") => Ok(Self::KeepAll),
            _ => Err(UnknownPicker(name.to_owned())),
        }
    }
}

fn leaf(sample: &PlannedSample) -> Option<&Leaf> {
    sample.leaf.as_ref()
}

/// A leaf goes if its parent was continued again later. Roots stay, as do branches that were left deeper down.
fn drop_retries(
    forest: &Forest,
    material: Vec<PlannedSample>,
) -> (Vec<PlannedSample>, Vec<String>) {
    let (dropped, mut kept): (Vec<_>, Vec<_>) = material.into_iter().partition(|sample| {
        leaf(sample).is_some_and(|leaf| forest.latest_sibling(leaf.turn) > Some(leaf.turn))
    });
    kept.sort_by_key(|sample| {
        Reverse(leaf(sample).map_or((0, None), |leaf| (leaf.path.len(), Some(leaf.turn))))
    });
    let mut warnings = Vec::new();
    for leaf in dropped.iter().filter_map(leaf) {
        warnings.extend(odd_drop(forest, leaf, &kept));
    }
    (kept, warnings)
}

/// What is odd about leaving out a leaf.
fn odd_drop(forest: &Forest, dropped: &Leaf, kept: &[PlannedSample]) -> Option<String> {
    let depth = dropped.path.len();
    let parent = depth.checked_sub(2).and_then(|at| dropped.path.get(at));
    let replaced_by = kept
        .iter()
        .filter_map(leaf)
        .filter(|leaf| depth.checked_sub(2).and_then(|at| leaf.path.get(at)) == parent)
        .filter(|leaf| {
            leaf.path
                .get(depth - 1)
                .is_some_and(|at| *at > dropped.turn)
        });
    let number = dropped.turn.index();
    let longest = replaced_by.map(|leaf| leaf.path.len()).max();
    if longest.is_none_or(|longest| longest < depth) {
        return Some(format!(
            "turn {number} was left out as a retry, but its conversation is longer than each that came after it"
        ));
    }
    let answered = |id: TurnId| forest.turn(id).map(|turn| turn.times().1);
    let later = forest.latest_sibling(dropped.turn).and_then(answered);
    if answered(dropped.turn) > later {
        return Some(format!(
            "turn {number} was left out as a retry, but the clock says that it was answered last"
        ));
    }
    None
}

/// A turn is trained in one sample only: that of the smallest leaf that contains it.
pub(super) fn train_once(samples: &mut [PlannedSample]) {
    let mut owners: HashMap<TurnId, TurnId> = HashMap::new();
    for leaf in samples.iter().filter_map(leaf) {
        for turn in &leaf.path {
            let owner = owners.entry(*turn).or_insert(leaf.turn);
            *owner = leaf.turn.min(*owner);
        }
    }
    for sample in samples {
        let Some(own) = leaf(sample).map(|leaf| leaf.turn) else {
            continue;
        };
        for turn in &mut sample.turns {
            turn.trained_elsewhere = owners.get(&turn.turn).is_some_and(|owner| *owner != own);
        }
    }
}
