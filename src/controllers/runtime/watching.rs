//! Watches and their caches: one per kind and namespace, narrowed by label, in pages, without what nobody reads (P14, P17).
//!
//! Lists are the most recent ones, so that a decision never starts from an old world (P15).
//! An error of a watch is an item of it, with a growing wait (P16), and is counted; the watch never ends before it is told to. After a new
//! list everything is looked at again: what was deleted in between is told by no event.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::health::Health;
use super::metrics::Metrics;
use crate::api::meta::field_managers;

/// A dead connection is noticed after this time and a few seconds (P3).
const WATCH_SECONDS: u32 = 120;
/// Objects per page of a list. All caches are filled at once: what is read at a time is what a start needs more memory for than what it keeps.
const PAGE: u32 = 100;

/// Where the operator looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    Cluster,
    /// In these namespaces, with rights in them alone.
    Namespaces(Vec<String>),
}

impl Scope {
    /// One entry per watch: a namespace, or everything.
    pub fn parts(&self) -> Vec<Option<String>> {
        match self {
            Self::Cluster => vec![None],
            Self::Namespaces(names) => {
                let mut names = names.clone();
                names.sort();
                names.dedup();
                names.into_iter().map(Some).collect()
            }
        }
    }
}

/// What a watch saw.
#[derive(Debug)]
pub enum Seen<'a, K> {
    /// An object was made, changed or deleted.
    Object(&'a K),
    /// A list was read, so that anything may have changed.
    List,
}

/// What every watch tells others about itself.
#[derive(Clone)]
pub struct Reporting {
    /// What is missing.
    pub health: Health,
    /// Errors are counted.
    pub metrics: Arc<Metrics>,
    /// When to end.
    pub stop: CancellationToken,
}

/// One watch.
pub struct Watch<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    api: Api<K>,
    kind: &'static str,
    selector: Option<String>,
    writer: Writer<K>,
    name: String,
    trim: fn(&mut K),
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// A watch of a kind, with its cache. `part` is the namespace, if only one is watched.
    pub fn new(
        api: Api<K>,
        kind: &'static str,
        part: Option<&str>,
        selector: Option<String>,
        resource: K::DynamicType,
    ) -> Self {
        let place = part.map(|part| format!(" in {part}")).unwrap_or_default();
        Self {
            api,
            kind,
            selector,
            writer: Writer::new(resource),
            name: format!("cache of {kind}{place}"),
            trim: |_| {},
        }
    }

    /// Keeps of each object what `trim` leaves of it.
    #[must_use]
    pub fn trimmed(mut self, trim: fn(&mut K)) -> Self {
        self.trim = trim;
        self
    }

    /// Its cache.
    pub fn store(&self) -> Store<K> {
        self.writer.as_reader()
    }

    /// Watches until told to stop, and tells what it sees once the cache has it.
    pub async fn run(mut self, reporting: Reporting, mut see: impl FnMut(Seen<'_, K>) + Send) {
        let mut config = watcher::Config::default()
            .timeout(WATCH_SECONDS)
            .page_size(PAGE);
        config.label_selector = self.selector.take();
        let mut events = std::pin::pin!(watcher(self.api.clone(), config).default_backoff());
        reporting.health.missing(&self.name, "not read yet");
        loop {
            let event = tokio::select! {
                () = reporting.stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                Some(Ok(event)) => {
                    let trim = self.trim;
                    let event = event.modify(|object| {
                        strip(object);
                        trim(object);
                    });
                    self.take(&event, &reporting.health, &mut see);
                }
                Some(Err(error)) => self.failed(&error, &reporting),
                None => return,
            }
        }
    }

    fn take(&mut self, event: &Event<K>, health: &Health, see: &mut impl FnMut(Seen<'_, K>)) {
        self.writer.apply_watcher_event(event);
        match event {
            Event::Apply(object) | Event::Delete(object) => see(Seen::Object(object)),
            Event::InitDone => {
                health.found(&self.name);
                see(Seen::List);
            }
            Event::Init | Event::InitApply(_) => {}
        }
    }

    fn failed(&self, error: &watcher::Error, reporting: &Reporting) {
        reporting.metrics.watch_failed(self.kind);
        tracing::warn!(kind = self.kind, %error, "a watch failed; it goes on");
        // What is in the cache stays usable: only a cache that was never filled is missing.
        let refused = match error {
            watcher::Error::InitialListFailed(error) => {
                Some(crate::controllers::error::words(error))
            }
            _ => None,
        };
        if let Some(words) = refused {
            reporting.health.missing(&self.name, words);
        }
    }
}

/// Leaves of managed fields what says which fields are ours.
fn strip<K: Resource>(object: &mut K) {
    let all = object.meta_mut().managed_fields.take();
    let ours: Vec<_> = all
        .into_iter()
        .flatten()
        .filter(|entry| {
            let manager = entry.manager.as_deref();
            let children = [field_managers::POOL, field_managers::JOB];
            manager.is_some_and(|manager| children.contains(&manager))
        })
        .collect();
    object.meta_mut().managed_fields = (!ours.is_empty()).then_some(ours);
}
