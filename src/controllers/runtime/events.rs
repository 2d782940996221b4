//! Events for people: what changed about an object, once per change of a reason.
//!
//! Which changes are worth a word is decided from the conditions before and after: pure. [`super::telling`] writes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::conditions::{reasons, types};

/// A word to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether somebody should look.
    pub warning: bool,
    /// The condition that changed.
    pub about: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// What to tell about a change of conditions: each condition that turned, or has another reason. Conditions that turn together for one reason are
/// told once, by the first of them.
///
/// `Reconciling` comes and goes with every edit and is told by what it ends in; what starts as False is no news, and neither is that a job's pool
/// and agents are as they should be from the start, or that a teardown had nothing to tell.
pub fn notes(before: &[Condition], after: &[Condition]) -> Vec<Note> {
    let news = after.iter().filter(|now| {
        let was = before.iter().find(|was| was.type_ == now.type_);
        match was {
            Some(was) => {
                was.status != now.status || (was.reason != now.reason && now.status == "True")
            }
            None => now.status == "True" && !is_taken_for_granted(now),
        }
    });
    let news = news.filter(|now| now.type_ != types::RECONCILING && !is_told_by_the_end(now));
    let mut told: Vec<Note> = Vec::new();
    for now in news {
        let note = Note {
            warning: is_bad(now),
            about: now.type_.clone(),
            reason: now.reason.clone(),
            message: now.message.clone(),
        };
        let is_known =
            |known: &Note| (known.warning, &known.reason) == (note.warning, &note.reason);
        if !told.iter().any(is_known) {
            told.push(note);
        }
    }
    told
}

/// What a job waits for, and has from the start.
fn is_taken_for_granted(condition: &Condition) -> bool {
    [types::POOL_READY, types::AGENTS_READY].contains(&condition.type_.as_str())
}

/// A driver that is done, and a teardown without a hook, are told by what the job ends in.
fn is_told_by_the_end(condition: &Condition) -> bool {
    let is_done = condition.type_ == types::SAMPLING
        && condition.status == "False"
        && condition.reason == reasons::AS_EXPECTED;
    let had_no_hook =
        condition.type_ == types::TEARDOWN_COMPLETE && condition.reason == reasons::NO_HOOK;
    is_done || had_no_hook
}

/// Bad when true: something is wrong. Of the others, losing what was there is.
fn is_bad(condition: &Condition) -> bool {
    let bad_when_true = matches!(condition.type_.as_str(), types::STALLED | types::FAILED);
    let neutral = condition.type_ == types::SUSPENDED;
    !neutral && bad_when_true == (condition.status == "True")
}
