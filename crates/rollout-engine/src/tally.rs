//! How takes end, and how many ended how.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a take ended: exactly one of these for each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "reason")]
pub enum TakeEnd {
    /// In the output.
    Kept,
    /// Dropped by the filter, or written as surplus.
    Filtered(String),
    /// Its prompt will be taken again.
    Recycled(String),
    /// Given up.
    Failed(String),
    /// Gone without a trace of its samples.
    Lost(String),
}

impl TakeEnd {
    /// Stable name of the state.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Filtered(_) => "filtered",
            Self::Recycled(_) => "recycled",
            Self::Failed(_) => "failed",
            Self::Lost(_) => "lost",
        }
    }

    /// The reason, empty for a kept group.
    pub fn reason(&self) -> &str {
        match self {
            Self::Kept => "",
            Self::Filtered(reason)
            | Self::Recycled(reason)
            | Self::Failed(reason)
            | Self::Lost(reason) => reason,
        }
    }

    /// The end with this state and reason; `None` for an unknown state.
    pub fn from_parts(state: &str, reason: String) -> Option<Self> {
        Some(match state {
            "kept" => Self::Kept,
            "filtered" => Self::Filtered(reason),
            "recycled" => Self::Recycled(reason),
            "failed" => Self::Failed(reason),
            "lost" => Self::Lost(reason),
            _ => return None,
        })
    }
}

/// Counts of takes by their end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// All takes.
    pub taken: u64,
    /// In the output.
    pub kept: u64,
    /// By reason.
    pub filtered: BTreeMap<String, u64>,
    /// By reason.
    pub recycled: BTreeMap<String, u64>,
    /// By reason.
    pub failed: BTreeMap<String, u64>,
    /// By reason.
    pub lost: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts one end `n` times.
    pub fn count(&mut self, end: &TakeEnd, n: u64) {
        let by_reason = match end {
            TakeEnd::Kept => {
                self.kept += n;
                return;
            }
            TakeEnd::Filtered(_) => &mut self.filtered,
            TakeEnd::Recycled(_) => &mut self.recycled,
            TakeEnd::Failed(_) => &mut self.failed,
            TakeEnd::Lost(_) => &mut self.lost,
        };
        *by_reason.entry(end.reason().to_owned()).or_default() += n;
    }

    /// Takes that ended.
    pub fn ended(&self) -> u64 {
        self.kept
            + [&self.filtered, &self.recycled, &self.failed, &self.lost]
                .into_iter()
                .flat_map(BTreeMap::values)
                .sum::<u64>()
    }

    /// Adds another tally to this one.
    pub fn add(&mut self, other: &Self) {
        self.taken += other.taken;
        self.kept += other.kept;
        let pairs = [
            (&mut self.filtered, &other.filtered),
            (&mut self.recycled, &other.recycled),
            (&mut self.failed, &other.failed),
            (&mut self.lost, &other.lost),
        ];
        for (mine, theirs) in pairs {
            for (reason, n) in theirs {
                *mine.entry(reason.clone()).or_default() += n;
            }
        }
    }
}
