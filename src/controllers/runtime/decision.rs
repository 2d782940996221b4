//! Whether an object is sent: pure, from what is wanted, what is there, and what the API server made of our last apply.
//!
//! - Nothing is sent when an apply would change nothing.
//! - What somebody changes by hand is repaired. Who changes it again and again meets a repair that comes ever later: two controllers that
//!   fight over a field never become a flood of writes.
//! - What the API server made of an apply is taken as that apply's meaning: a value that it normalizes in a way we do not know is sent once.
//! - A cache that is behind our own last write decides nothing (P12).

use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::ownership::{self, Difference};

/// Earliest second repair of the same object; doubles up to [`LAST_REPAIR_GAP`].
const FIRST_REPAIR_GAP: Duration = Duration::from_secs(10);
/// Longest wait between two repairs.
const LAST_REPAIR_GAP: Duration = Duration::from_mins(10);

/// A hash of a value.
pub type Fingerprint = [u8; 32];

/// What we remember of the last apply of an object.
#[derive(Clone, Debug)]
pub struct Applied {
    desired: Fingerprint,
    answer: Fingerprint,
    resource_version: Option<u64>,
    repairs: u32,
    repaired: Option<Instant>,
}

/// Why something is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no such object.
    Missing,
    /// We want something else than before.
    Changed(Difference),
    /// We want the same as before, and somebody changed it.
    Drifted(Difference),
}

impl Reason {
    /// The word in metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Missing => "created",
            Self::Changed(_) => "changed",
            Self::Drifted(_) => "repaired",
        }
    }
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is as it should be.
    Settled,
    /// Apply it.
    Send(Reason),
    /// It was repaired a moment ago and is wrong again: not before this time has passed.
    Later(Duration),
}

/// What to do.
pub fn decide(
    desired: &Value,
    live: Option<&Value>,
    last: Option<&Applied>,
    manager: &str,
    now: Instant,
) -> Decision {
    let Some(live) = live else {
        return Decision::Send(Reason::Missing);
    };
    let same_wish = last.filter(|last| last.desired == hash(desired));
    if let Some(last) = same_wish {
        let behind = resource_version(live) < last.resource_version;
        if behind || last.answer == hash(&ownership::fingerprint(live, manager)) {
            return Decision::Settled;
        }
    }
    let Some(difference) = ownership::difference(desired, live, manager) else {
        return Decision::Settled;
    };
    let Some(last) = same_wish else {
        return Decision::Send(Reason::Changed(difference));
    };
    match last.wait(now) {
        Some(wait) => Decision::Later(wait),
        None => Decision::Send(Reason::Drifted(difference)),
    }
}

impl Applied {
    /// What to remember of an apply, from the API server's answer to it.
    pub fn new(
        desired: &Value,
        answer: &Value,
        manager: &str,
        reason: &Reason,
        before: Option<&Self>,
        now: Instant,
    ) -> Self {
        let repair = matches!(reason, Reason::Drifted(_));
        Self {
            desired: hash(desired),
            answer: hash(&ownership::fingerprint(answer, manager)),
            resource_version: resource_version(answer),
            repairs: if repair {
                before.map_or(0, |before| before.repairs) + 1
            } else {
                0
            },
            repaired: repair.then_some(now),
        }
    }

    fn wait(&self, now: Instant) -> Option<Duration> {
        let doublings = self.repairs.saturating_sub(1).min(16);
        let gap = FIRST_REPAIR_GAP
            .saturating_mul(1 << doublings)
            .min(LAST_REPAIR_GAP);
        let left = gap.checked_sub(now.saturating_duration_since(self.repaired?))?;
        (!left.is_zero()).then_some(left)
    }
}

/// Resource versions of one object grow, as numbers.
pub fn resource_version(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

pub(super) fn hash(value: &Value) -> Fingerprint {
    Sha256::digest(value.to_string().as_bytes()).into()
}
