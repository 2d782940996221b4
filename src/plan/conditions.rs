//! Conditions: what holds now, with the time when that last changed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// Longest message that the API takes.
const LONGEST_MESSAGE: usize = 4096;

/// Whether something holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

impl Holds {
    fn text(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Holds {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition without its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its type.
    pub about: &'static str,
    /// Whether it holds.
    pub holds: Holds,
    /// Why, as a stable word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

impl Claim {
    /// A condition.
    pub fn new(
        about: &'static str,
        holds: impl Into<Holds>,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            about,
            holds: holds.into(),
            reason,
            message: message.into(),
        }
    }
}

/// The conditions after a look. One that did not turn keeps the time when it last did; one that nobody claims is gone.
pub fn merge(
    before: &[Condition],
    claims: Vec<Claim>,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    claims
        .into_iter()
        .map(|claim| {
            let status = claim.holds.text();
            let since = before
                .iter()
                .find(|was| was.type_ == claim.about && was.status == status)
                .map_or(Time(whole_seconds(now)), |was| {
                    was.last_transition_time.clone()
                });
            Condition {
                type_: claim.about.to_owned(),
                status: status.to_owned(),
                reason: claim.reason.to_owned(),
                message: shorten(claim.message),
                observed_generation: Some(generation),
                last_transition_time: since,
            }
        })
        .collect()
}

/// The API keeps whole seconds: a finer time would differ from itself once it was stored.
pub(super) fn whole_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn shorten(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE - 3));
        message.push_str("...");
    }
    message
}
