//! Server-side apply of raw objects.
//!
//! One field manager per controller, another for statuses (P19).
//!
//! Inputs: the wanted object, and the live one from a cache. Guarantees: one field manager, force on what is ours, unknown fields refused,
//! never a write that changes nothing, never a write over an object of somebody else. Caveat: what this process remembers of its applies
//! is gone with it; afterwards [`super::ownership`] alone decides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::calls::{Calls, Effect, Identity};
use super::decision::{self, Applied, Decision, Reason};
use super::memory::Memory;
use super::metrics::Metrics;
use super::prune::{self, Standing};
use crate::controllers::{Class, Error};

/// Lower than that of any object.
const NO_VERSION: &str = "1";

/// Applies objects as one field manager.
#[derive(Clone)]
pub struct Applier {
    calls: Calls,
    manager: &'static str,
    metrics: Arc<Metrics>,
    memory: Arc<Memory>,
}

/// What became of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was as it should be; nothing was sent.
    Settled,
    /// It was sent.
    Sent(Reason),
    /// Somebody changes it again and again; it is repaired after this time.
    Later(Duration),
}

impl Applier {
    /// An applier of one controller.
    pub fn new(calls: Calls, manager: &'static str, metrics: Arc<Metrics>) -> Self {
        Self {
            calls,
            manager,
            metrics,
            memory: Arc::default(),
        }
    }

    /// Makes an object be as wanted. `cached` is the object as a cache has it.
    pub async fn apply(&self, desired: &Value, cached: Option<&Value>) -> Result<Outcome, Error> {
        let identity = Identity::of(desired)?;
        if cached.is_none()
            && let Some(made) = self.create(&identity, desired).await?
        {
            self.note(&identity, desired, &made, &Reason::Missing, None);
            return Ok(Outcome::Sent(Reason::Missing));
        }
        // A cache holds our objects only, and may be behind: what it does not have and is there all the same may be somebody else's.
        let read;
        let live = if cached.is_some() {
            cached
        } else {
            read = self.read(&identity).await?;
            read.as_ref()
        };
        if let Some(live) = live {
            self.make_way(desired, live, &identity).await?;
        }
        let owner = prune::owner(desired).unwrap_or_default();
        let uid = live.and_then(|live| live["metadata"]["uid"].as_str());
        let last = uid.and_then(|uid| self.memory.applied(owner, uid));
        match decision::decide(desired, live, last.as_ref(), self.manager, Instant::now()) {
            Decision::Settled => {
                self.metrics.applied("unchanged");
                Ok(Outcome::Settled)
            }
            Decision::Later(wait) => {
                self.metrics.applied("postponed");
                Ok(Outcome::Later(wait))
            }
            Decision::Send(reason) => {
                let answer = self.send(&identity, desired).await?;
                self.note(&identity, desired, &answer, &reason, last.as_ref());
                Ok(Outcome::Sent(reason))
            }
        }
    }

    /// Makes an object that is not there; none: one of that name is, or the API server does not say.
    ///
    /// An apply onto a version that no object has is refused where there is one, whoever it belongs to, and makes it where there is none: one
    /// call instead of a question before it. Kubernetes promises the first half alone; a server that refuses the second is asked.
    async fn create(&self, identity: &Identity, desired: &Value) -> Result<Option<Value>, Error> {
        let mut desired = desired.clone();
        desired["metadata"]["resourceVersion"] = json!(NO_VERSION);
        match self.send(identity, &desired).await {
            Ok(made) => Ok(Some(made)),
            Err(error) if matches!(error.class(), Class::Conflict | Class::Invalid) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Remembers what the API server made of an apply.
    fn note(
        &self,
        identity: &Identity,
        desired: &Value,
        answer: &Value,
        reason: &Reason,
        last: Option<&Applied>,
    ) {
        let applied = Applied::new(desired, answer, self.manager, reason, last, Instant::now());
        if let Some(uid) = answer["metadata"]["uid"].as_str() {
            let owner = prune::owner(desired).unwrap_or_default();
            self.memory.note_applied(owner, uid, applied);
        }
        tracing::info!(object = %identity, ?reason, "applied");
        self.metrics.applied(reason.label());
    }

    /// Refuses to write over an object of somebody else. Garbage collection takes away what an owner of the same name left, but can take minutes
    /// when definitions were made again; so that is deleted here.
    async fn make_way(
        &self,
        desired: &Value,
        live: &Value,
        identity: &Identity,
    ) -> Result<(), Error> {
        let object = identity.to_string();
        match prune::standing(desired, live, identity) {
            Standing::Ours => Ok(()),
            Standing::Leaving => Err(Error::Leaving { object }),
            Standing::LeftOver(victim) => {
                prune::delete(&self.calls, &[victim]).await?;
                Err(Error::Leaving { object })
            }
            Standing::Foreign { owner } => Err(Error::Foreign { object, owner }),
        }
    }

    /// Forgets what an owner had that is gone.
    pub fn forget(&self, owner: &str) {
        self.memory.forget(owner);
    }

    /// The way to the API server.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    pub(super) fn manager(&self) -> &'static str {
        self.manager
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    async fn read(&self, identity: &Identity) -> Result<Option<Value>, Error> {
        let api = identity.api(self.calls.client());
        let found = self
            .calls
            .call(
                Effect::Read,
                "read",
                &identity.to_string(),
                api.get_opt(&identity.name),
            )
            .await?;
        found.map(|found| raw(&found, identity)).transpose()
    }

    async fn send(&self, identity: &Identity, desired: &Value) -> Result<Value, Error> {
        let api = identity.api(self.calls.client());
        // Strict: a field that the API server does not know is told, not dropped.
        let params = PatchParams::apply(self.manager).force().validation_strict();
        let patch = Patch::Apply(desired);
        let answer = self
            .calls
            .call(
                Effect::Write,
                "apply",
                &identity.to_string(),
                api.patch(&identity.name, &params, &patch),
            )
            .await?;
        raw(&answer, identity)
    }
}

fn raw(object: &kube::api::DynamicObject, identity: &Identity) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|error| {
        Error::call(
            "read",
            &identity.to_string(),
            kube::Error::SerdeError(error),
        )
    })
}
