//! The frame around every reconcile: nothing that one object does can stop the others (P23).
//!
//! Expected states are a [`Next`]; an error is counted by class, told in the log, and sets when the object is tried again. A watch event
//! never gets an object past its backoff.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use kube::runtime::controller::Action;

use super::backoff::{self, Backoff, Gate};
use super::metrics::Metrics;
use crate::controllers::Error;

/// Longest time of one reconcile.
pub const LIMIT: Duration = Duration::from_mins(1);
/// Every object is looked at again after this time, should a change have been missed.
const RESYNC: Duration = Duration::from_mins(10);

/// When an object is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something changes.
    OnChange,
    /// After this time, or when something changes.
    After(Duration),
}

/// Which object a reconcile is about.
#[derive(Clone, Debug)]
pub struct Subject {
    /// `namespace/name`.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Generation of its spec.
    pub generation: i64,
}

/// The frame of one kind's reconciles.
#[derive(Clone, Debug)]
pub struct Frame {
    kind: &'static str,
    metrics: Arc<Metrics>,
    backoff: Arc<Backoff>,
    limit: Duration,
}

impl Frame {
    /// A frame.
    pub fn new(kind: &'static str, metrics: Arc<Metrics>) -> Self {
        Self::with_limit(kind, metrics, LIMIT)
    }

    /// A frame with another time limit.
    pub fn with_limit(kind: &'static str, metrics: Arc<Metrics>, limit: Duration) -> Self {
        Self {
            kind,
            metrics,
            backoff: Arc::default(),
            limit,
        }
    }

    /// Runs a reconcile, and says when the next one is.
    pub async fn run(
        &self,
        subject: &Subject,
        reconcile: impl Future<Output = Result<Next, Error>>,
    ) -> Action {
        let started = Instant::now();
        if let Gate::Wait(wait) = self.backoff.gate(&subject.uid, subject.generation, started) {
            return Action::requeue(wait);
        }
        let running = self.metrics.reconcile_starts(self.kind);
        let outcome = self.bounded(reconcile).await;
        drop(running);
        let class = outcome.as_ref().err().map(Error::class);
        self.metrics.reconciled(
            self.kind,
            class.map(super::super::Class::label),
            started.elapsed(),
        );
        let action = match outcome {
            Ok(next) => self.succeeded(subject, next),
            Err(error) => self.failed(subject, &error),
        };
        self.metrics.failing(self.kind, self.backoff.failing());
        action
    }

    /// The object is gone.
    pub fn forget(&self, uid: &str) {
        self.backoff.forget(uid);
        self.metrics.failing(self.kind, self.backoff.failing());
    }

    async fn bounded(
        &self,
        reconcile: impl Future<Output = Result<Next, Error>>,
    ) -> Result<Next, Error> {
        let caught = AssertUnwindSafe(reconcile).catch_unwind();
        match tokio::time::timeout(self.limit, caught).await {
            Err(_) => Err(Error::Overran { limit: self.limit }),
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let message = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(Error::Panicked {
                    message: message.unwrap_or("no message").to_owned(),
                })
            }
        }
    }

    fn succeeded(&self, subject: &Subject, next: Next) -> Action {
        self.backoff.forget(&subject.uid);
        let plain = match next {
            Next::OnChange => RESYNC,
            Next::After(wait) => wait.min(RESYNC),
        };
        Action::requeue(backoff::jitter(plain, &subject.uid, 0))
    }

    fn failed(&self, subject: &Subject, error: &Error) -> Action {
        let class = error.class();
        let wait = self
            .backoff
            .failed(&subject.uid, subject.generation, class, Instant::now());
        let (kind, name) = (self.kind, &subject.name);
        tracing::warn!(kind, name, class = class.label(), again = ?wait, %error, "reconcile failed");
        wait.map_or_else(Action::await_change, Action::requeue)
    }
}
