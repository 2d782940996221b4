//! One kind's part of a process, in one namespace or in the cluster: the watches that feed its queue, and the loop that empties it.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube::runtime::controller::{self, Action, applier};
use kube::runtime::reflector::Store;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::manager::Shared;
use super::roots::Queues;
use super::runtime::children::Children;
use super::runtime::looked::Looked;
use super::runtime::queue::{Queue, Waiting};
use super::runtime::reconcile::Subject;
use super::runtime::watching::{Seen, Watch};
use super::trimming;

/// Pods come and go in bursts: an object is looked at once things are quiet for so long (P8).
const DEBOUNCE: Duration = Duration::from_millis(200);

/// Caches of one kind, by namespace; none: the cluster's.
pub(super) type Stores<K> = Vec<(Option<String>, Store<K>)>;

/// The objects of a namespace, or of the cluster, that are reconciled.
pub(super) struct Part<K: Resource<DynamicType = ()> + 'static> {
    /// The namespace; none: the cluster.
    pub(super) namespace: Option<String>,
    pub(super) store: Store<K>,
    pub(super) queue: Queue,
    pub(super) waiting: Waiting,
}

/// The queues of all parts.
pub(super) fn queues<K: Resource<DynamicType = ()>>(parts: &[Part<K>]) -> Queues {
    let parts = parts.iter();
    parts
        .map(|part| (part.namespace.clone(), part.queue.clone()))
        .collect()
}

/// Reconciles the objects of all parts until told to stop, and until what runs then has ended. `forget` is told the UIDs of those that are gone.
pub(super) async fn run<K, F>(
    parts: Vec<Part<K>>,
    filled: BoxFuture<'static, ()>,
    concurrency: u16,
    stop: CancellationToken,
    look: F,
    forget: impl Fn(&str) + Clone + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    F: Fn(Arc<K>, Subject) -> BoxFuture<'static, Action> + Clone + Send + Sync + 'static,
{
    // What is not in a cache yet must not look as if it were not there.
    tokio::select! {
        () = stop.cancelled() => return,
        () = filled => {}
    }
    let config = controller::Config::default()
        .concurrency(concurrency)
        .debounce(DEBOUNCE);
    join_all(
        parts
            .into_iter()
            .map(|part| part.run(config.clone(), stop.clone(), look.clone(), forget.clone())),
    )
    .await;
}

impl<K> Part<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    async fn run<F>(
        self,
        config: controller::Config,
        stop: CancellationToken,
        look: F,
        forget: impl Fn(&str) + Clone + Send + Sync + 'static,
    ) where
        F: Fn(Arc<K>, Subject) -> BoxFuture<'static, Action> + Send + Sync + 'static,
    {
        let Self {
            namespace: _,
            store,
            queue,
            waiting,
        } = self;
        let look = Arc::new(look);
        let looked = Arc::<Looked>::default();
        let (gone, not_there, forget_it) = (queue.clone(), Arc::clone(&looked), forget.clone());
        let reconcile = move |object: Arc<K>, _: Arc<()>| {
            let (queue, look) = (queue.clone(), Arc::clone(&look));
            let (looked, forget) = (Arc::clone(&looked), forget.clone());
            async move {
                let subject = subject(&*object);
                let key = (object.namespace().unwrap_or_default(), object.name_any());
                queue.begin(&key.0, &key.1);
                if let Some(before) = looked.at(key, &subject.uid) {
                    forget(&before);
                }
                Ok::<_, Infallible>(look(object, subject).await)
            }
            .boxed()
        };
        let never = |_: Arc<K>, _: &Infallible, _: Arc<()>| Action::await_change();
        let mut ended = std::pin::pin!(applier(
            reconcile,
            never,
            Arc::new(()),
            store,
            waiting.stream::<K>(stop),
            config,
        ));
        while let Some(outcome) = ended.next().await {
            if let Err(error) = outcome {
                tracing::debug!(%error, "nothing to reconcile");
                if let controller::Error::ObjectNotFound(object) = error {
                    let key = (object.namespace.unwrap_or_default(), object.name);
                    gone.gone(&key.0, &key.1);
                    if let Some(uid) = not_there.gone(&key) {
                        forget_it(&uid);
                    }
                }
            }
        }
    }
}

/// The watches of one part.
pub(super) struct Starting<'a, K: Resource<DynamicType = ()> + 'static> {
    pub(super) shared: &'a Shared,
    pub(super) watches: &'a mut JoinSet<()>,
    pub(super) part: Option<String>,
    pub(super) queue: Queue,
    /// The objects that are reconciled.
    pub(super) roots: Store<K>,
}

impl<K> Starting<'_, K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    fn spawn<O>(&mut self, watch: Watch<O>, see: impl FnMut(Seen<'_, O>) + Send + 'static)
    where
        O: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        O::DynamicType: Eq + std::hash::Hash + Clone + Send + Sync,
    {
        self.watches
            .spawn(watch.run(self.shared.reporting.clone(), see));
    }

    /// What was made for an object wakes the one that the label names.
    pub(super) fn children<const N: usize>(
        &mut self,
        kinds: [(&'static str, ApiResource); N],
        selector: &str,
        label: &'static str,
        children: &mut Children,
    ) {
        for (kind, resource) in kinds {
            let client = self.shared.client.clone();
            let api: Api<DynamicObject> = match &self.part {
                None => Api::all_with(client, &resource),
                Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            };
            let selector = Some(selector.to_owned());
            let watch = Watch::new(api, kind, self.part.as_deref(), selector, resource.clone());
            children.add(resource, self.part.clone(), watch.store());
            let (queue, roots) = (self.queue.clone(), self.roots.clone());
            self.spawn(watch, move |seen| owner_of(&queue, &roots, label, &seen));
        }
    }

    /// Pods wake the object that the label names.
    pub(super) fn pods(&mut self, selector: String, label: &'static str) -> Store<Pod> {
        let api = typed(&self.shared.client, self.part.as_deref());
        let watch = Watch::<Pod>::new(api, "Pod", self.part.as_deref(), Some(selector), ())
            .trimmed(trimming::pod);
        let store = watch.store();
        let (queue, roots) = (self.queue.clone(), self.roots.clone());
        self.spawn(watch, move |seen| owner_of(&queue, &roots, label, &seen));
        store
    }
}

/// Ends when these caches were filled.
pub(super) async fn filled<A, B>(children: Children, some: Stores<A>, others: Stores<B>)
where
    A: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    B: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    children.filled().await;
    // An error: the watch ended, which a stop does.
    for (_, store) in &some {
        let _ = store.wait_until_ready().await;
    }
    for (_, store) in &others {
        let _ = store.wait_until_ready().await;
    }
}

pub(super) fn typed<K>(client: &Client, part: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match part {
        None => Api::all(client.clone()),
        Some(namespace) => Api::namespaced(client.clone(), namespace),
    }
}

pub(super) fn add<K: Resource>(queue: &Queue, object: &K) {
    queue.add(&object.namespace().unwrap_or_default(), &object.name_any());
}

pub(super) fn all<K>(queue: &Queue, roots: &Store<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    for object in roots.state() {
        add(queue, &*object);
    }
}

/// What has labels of ours and was made by others finds no object of that name.
fn owner_of<K, O>(queue: &Queue, roots: &Store<K>, label: &str, seen: &Seen<'_, O>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    O: Resource,
{
    match seen {
        Seen::Object(object) => {
            if let Some(owner) = object.labels().get(label) {
                queue.add(&object.namespace().unwrap_or_default(), owner);
            }
        }
        Seen::List => all(queue, roots),
    }
}

fn subject<K: Resource>(object: &K) -> Subject {
    Subject {
        name: format!(
            "{}/{}",
            object.namespace().unwrap_or_default(),
            object.name_any()
        ),
        uid: object.uid().unwrap_or_default(),
        generation: object.meta().generation.unwrap_or_default(),
    }
}

/// Whether a part has a namespace.
pub(super) fn covers(part: Option<&str>, namespace: &str) -> bool {
    part.is_none_or(|part| part == namespace)
}
