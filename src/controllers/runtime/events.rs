//! Events for people: what changed about an object, once per change of a reason.
//!
//! Which changes are worth a word is decided from the conditions before and after. An event that is told again within minutes is one event
//! with a count (P22: create and patch of `events.k8s.io`). Telling never fails a reconcile.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::election::Leadership;
use super::metrics::Metrics;
use crate::api::conditions::{reasons, types};
use crate::api::meta;

/// Longest wait for an event to be written.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest note that the API server takes.
const LONGEST_NOTE: usize = 1024;

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
/// `Reconciling` comes and goes with every edit and is told by what it ends in; what starts as False is no news.
pub fn notes(before: &[Condition], after: &[Condition]) -> Vec<Note> {
    let news = after.iter().filter(|now| {
        let was = before.iter().find(|was| was.type_ == now.type_);
        match was {
            Some(was) => {
                was.status != now.status || (was.reason != now.reason && now.status == "True")
            }
            None => now.status == "True",
        }
    });
    let news = news.filter(|now| now.type_ != types::RECONCILING && !is_end_of_sampling(now));
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

/// A driver that is done is told by what the job ends in.
fn is_end_of_sampling(condition: &Condition) -> bool {
    condition.type_ == types::SAMPLING
        && condition.status == "False"
        && condition.reason == reasons::AS_EXPECTED
}

/// Bad when true: something is wrong. Of the others, losing what was there is.
fn is_bad(condition: &Condition) -> bool {
    let bad_when_true = matches!(condition.type_.as_str(), types::STALLED | types::FAILED);
    let neutral = condition.type_ == types::SUSPENDED;
    !neutral && bad_when_true == (condition.status == "True")
}

/// Tells events.
#[derive(Clone)]
pub struct Teller {
    recorder: Recorder,
    leadership: Leadership,
    metrics: Arc<Metrics>,
}

impl Teller {
    /// Tells as `instance`, the name of the pod.
    pub fn new(
        client: Client,
        instance: Option<String>,
        leadership: Leadership,
        metrics: Arc<Metrics>,
    ) -> Self {
        let reporter = Reporter {
            controller: meta::CONTROLLER_NAME.to_owned(),
            instance,
        };
        Self {
            recorder: Recorder::new(client, reporter),
            leadership,
            metrics,
        }
    }

    /// Tells notes about an object.
    pub async fn tell(&self, object: &ObjectReference, notes: &[Note]) {
        for note in notes {
            if !self.leadership.is_held() {
                return;
            }
            let event = event(note);
            let answer = tokio::time::timeout(LIMIT, self.recorder.publish(&event, object)).await;
            let outcome = match answer {
                Ok(Ok(())) => "told",
                Ok(Err(error)) => {
                    tracing::warn!(reason = note.reason, %error, "cannot write an event");
                    "refused"
                }
                Err(_) => {
                    tracing::warn!(
                        reason = note.reason,
                        "cannot write an event: no answer in time"
                    );
                    "unanswered"
                }
            };
            self.metrics.event(outcome);
        }
    }
}

fn event(note: &Note) -> Event {
    let mut text = note.message.clone();
    if text.len() > LONGEST_NOTE {
        text.truncate(text.floor_char_boundary(LONGEST_NOTE - 3));
        text.push_str("...");
    }
    Event {
        type_: if note.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: note.reason.clone(),
        note: (!text.is_empty()).then_some(text),
        // What `kubectl describe` does not show tells conditions of one reason apart.
        action: note.about.clone(),
        secondary: None,
    }
}
