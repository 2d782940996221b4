//! Objects that are to be reconciled. An object waits once, however often something about it changes.

use std::collections::HashMap;
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
    waiting: Arc<Mutex<HashMap<Key, Place>>>,
    sender: mpsc::UnboundedSender<Key>,
    metrics: Arc<Metrics>,
}

/// Where an object waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Here: it need not be added again.
    Here,
    /// At the other end, which looks whether it exists, and when it may begin.
    Taken,
}

/// Its other end.
pub struct Waiting {
    receiver: mpsc::UnboundedReceiver<Key>,
    waiting: Arc<Mutex<HashMap<Key, Place>>>,
}

impl Queue {
    /// A queue and its other end. It is as long as there are objects, at the most.
    pub fn new(kind: &'static str, metrics: Arc<Metrics>) -> (Self, Waiting) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let waiting = Arc::<Mutex<_>>::default();
        let queue = Self {
            kind,
            waiting: Arc::clone(&waiting),
            sender,
            metrics,
        };
        (queue, Waiting { receiver, waiting })
    }

    /// An object is to be reconciled.
    pub fn add(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut waiting = self.waiting.lock();
        if waiting.insert(key.clone(), Place::Here) != Some(Place::Here) {
            // The other end is gone during a stop only.
            let _ = self.sender.send(key);
        }
        self.metrics.queued(self.kind, waiting.len());
    }

    /// Its reconcile begins: what changes from now on makes it wait again.
    pub fn begin(&self, namespace: &str, name: &str) {
        self.leaves(namespace, name);
    }

    /// It does not exist, so that nothing begins.
    pub fn gone(&self, namespace: &str, name: &str) {
        self.leaves(namespace, name);
    }

    fn leaves(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut waiting = self.waiting.lock();
        // Added again since it was taken: it goes on waiting.
        if waiting.get(&key) == Some(&Place::Taken) {
            waiting.remove(&key);
        }
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
        unfold((self, stop), |(mut queue, stop)| async move {
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                key = queue.receiver.recv() => key,
            };
            let key = next?;
            let object = ObjectRef::new(&key.1).within(&key.0);
            queue.waiting.lock().insert(key, Place::Taken);
            Some((Ok(object), (queue, stop)))
        })
    }
}
