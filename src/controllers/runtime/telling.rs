//! Events on their way to the API server: no reconcile waits for one to be written.
//!
//! Inputs: notes about objects. Guarantees: they are written one after the other, in their order, while this process leads; those that wait at a stop
//! are written before the lease is given back; an event that is told again within minutes is one event with a count (P22: create and patch of
//! `events.k8s.io`). Caveats: with more than [`MOST`] waiting further ones are dropped, and counted; what waits when the process is killed is lost.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::election::Leadership;
use super::events::Note;
use super::metrics::Metrics;
use crate::api::meta;

/// Longest wait for an event to be written.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest note that the API server takes.
const LONGEST_NOTE: usize = 1024;
/// Notes that wait at the most.
pub const MOST: usize = 1024;

/// A note, and what it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// The object.
    pub object: ObjectReference,
    /// What is told about it.
    pub note: Note,
}

/// Tells events, without waiting.
#[derive(Clone)]
pub struct Teller {
    sender: mpsc::Sender<Word>,
    metrics: Arc<Metrics>,
}

/// Its other end.
pub struct Told {
    receiver: mpsc::Receiver<Word>,
}

/// A teller, and what it told.
pub fn teller(metrics: Arc<Metrics>) -> (Teller, Told) {
    let (sender, receiver) = mpsc::channel(MOST);
    (Teller { sender, metrics }, Told { receiver })
}

impl Teller {
    /// Tells notes about an object.
    pub fn tell(&self, object: &ObjectReference, notes: &[Note]) {
        for note in notes {
            let word = Word {
                object: object.clone(),
                note: note.clone(),
            };
            if self.sender.try_send(word).is_err() {
                tracing::warn!(
                    object = object.name,
                    reason = note.reason,
                    "an event is dropped: too many wait"
                );
                self.metrics.event("dropped");
            }
        }
    }
}

impl Told {
    /// Writes one after the other until told to stop, and then what waits.
    pub async fn write<F: Future<Output = ()>>(
        mut self,
        stop: CancellationToken,
        write: impl Fn(Word) -> F,
    ) {
        let mut is_open = true;
        loop {
            let word = tokio::select! {
                biased;
                () = stop.cancelled(), if is_open => {
                    is_open = false;
                    self.receiver.close();
                    continue;
                }
                word = self.receiver.recv() => word,
            };
            let Some(word) = word else { return };
            write(word).await;
        }
    }
}

/// Writes events.
#[derive(Clone)]
pub struct Writer {
    recorder: Recorder,
    leadership: Leadership,
    metrics: Arc<Metrics>,
}

impl Writer {
    /// Writes as `instance`, the name of the pod.
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

    /// Writes one; a failure is counted and told in the log.
    pub async fn write(&self, Word { object, note }: Word) {
        if !self.leadership.is_held() {
            return;
        }
        let event = event(&note);
        let answer = tokio::time::timeout(LIMIT, self.recorder.publish(&event, &object)).await;
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
