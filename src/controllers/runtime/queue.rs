//! Objects that are to be reconciled. An object waits once, however often something about it changes.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream::unfold;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;

/// Namespace and name.
pub type Key = (String, String);

/// A queue of one kind.
#[derive(Clone)]
pub struct Queue {
    kind: &'static str,
    waiting: Arc<Mutex<HashSet<Key>>>,
    sender: mpsc::UnboundedSender<Key>,
    metrics: Arc<Metrics>,
}

/// Its other end.
pub struct Waiting(mpsc::UnboundedReceiver<Key>);

impl Queue {
    /// A queue and its other end. It is as long as there are objects, at the most.
    pub fn new(kind: &'static str, metrics: Arc<Metrics>) -> (Self, Waiting) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queue = Self {
            kind,
            waiting: Arc::default(),
            sender,
            metrics,
        };
        (queue, Waiting(receiver))
    }

    /// An object is to be reconciled.
    pub fn add(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut waiting = self.waiting.lock();
        if waiting.insert(key.clone()) {
            // The other end is gone during a stop only.
            let _ = self.sender.send(key);
        }
        self.metrics.queued(self.kind, waiting.len());
    }

    /// Its reconcile begins: what changes from now on makes it wait again.
    pub fn begin(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut waiting = self.waiting.lock();
        waiting.remove(&key);
        self.metrics.queued(self.kind, waiting.len());
    }
}

impl Waiting {
    /// As a stream that ends when told to: the reconciles that run end by themselves then.
    pub fn stream<K>(
        self,
        stop: CancellationToken,
    ) -> impl Stream<Item = Result<ObjectRef<K>, Infallible>>
    where
        K: Resource<DynamicType = ()>,
    {
        unfold((self.0, stop), |(mut receiver, stop)| async move {
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                key = receiver.recv() => key,
            };
            let (namespace, name) = next?;
            Some((
                Ok(ObjectRef::new(&name).within(&namespace)),
                (receiver, stop),
            ))
        })
    }
}
