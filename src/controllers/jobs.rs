//! The jobs of a process: watches that feed the queue, and the reconciler that empties it.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, DeserializeGuard};
use kube::runtime::controller::{self, Action, applier};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::job::{Context, Drivers, JobReconciler};
use super::manager::Shared;
use super::runtime::apply::Applier;
use super::runtime::calls::Calls;
use super::runtime::children::Children;
use super::runtime::events::Teller;
use super::runtime::queue::{Queue, Waiting};
use super::runtime::reconcile::{Frame, Subject};
use super::runtime::watching::{Seen, Watch};
use crate::api::job::RolloutJob;
use crate::api::meta::{self, field_managers, labels};
use crate::api::pool::SGLangPool;

type Pool = DeserializeGuard<SGLangPool>;
type Job = DeserializeGuard<RolloutJob>;
type Stores<K> = Vec<(Option<String>, Store<K>)>;

/// Pods come and go in bursts: an object is looked at once things are quiet for so long (P8).
const DEBOUNCE: std::time::Duration = std::time::Duration::from_millis(200);

/// The jobs of a process.
pub(super) struct Jobs {
    shared: Shared,
    parts: Vec<Part>,
    /// Ends when every cache was filled.
    filled: BoxFuture<'static, ()>,
    reconciler: Arc<JobReconciler>,
    frame: Frame,
}

/// The jobs of a namespace, or of the cluster.
struct Part {
    store: Store<Job>,
    queue: Queue,
    waiting: Waiting,
}

/// The watches of one namespace, or of the cluster.
struct Starting<'a> {
    shared: &'a Shared,
    watches: &'a mut JoinSet<()>,
    part: Option<String>,
    queue: Queue,
    jobs: Store<Job>,
}

impl Jobs {
    /// Starts the watches; nothing is reconciled yet.
    pub(super) fn start(shared: &Shared, watches: &mut JoinSet<()>) -> Result<Self, Error> {
        let mut parts: Vec<Part> = Vec::new();
        let mut children = Children::default();
        let mut pods: Stores<Pod> = Vec::new();
        let mut pools: Stores<Pool> = Vec::new();
        let mut queues = Vec::new();
        for part in shared.settings.scope.parts() {
            let (queue, waiting) = Queue::new(meta::JOB_KIND, Arc::clone(&shared.metrics));
            let api = typed(&shared.client, part.as_deref());
            // No selector: it would hide users' objects (P17).
            let roots = Watch::<Job>::new(api, meta::JOB_KIND, part.as_deref(), None, ());
            let store = roots.store();
            let mut starting = Starting {
                shared,
                watches,
                part: part.clone(),
                queue: queue.clone(),
                jobs: store.clone(),
            };
            starting.roots(roots);
            starting.children(&mut children);
            pods.push((part.clone(), starting.pods()));
            pools.push((part.clone(), starting.pools()));
            queues.push((part, queue.clone()));
            parts.push(Part {
                store,
                queue,
                waiting,
            });
        }
        let filled = filled(children.clone(), pods.clone(), pools.clone()).boxed();
        let drivers = Drivers::new().map_err(|error| {
            Error::call(
                "make",
                "a client for drivers",
                kube::Error::Service(error.into()),
            )
        })?;
        let context = context(shared, children, pods, pools, queues, drivers);
        Ok(Self {
            frame: Frame::new(meta::JOB_KIND, Arc::clone(&shared.metrics)),
            shared: shared.clone(),
            parts,
            filled,
            reconciler: Arc::new(JobReconciler::new(context)),
        })
    }

    /// Reconciles until told to stop, and until what runs then has ended.
    pub(super) async fn run(self, stop: CancellationToken) {
        let Self {
            shared,
            parts,
            filled,
            reconciler,
            frame,
        } = self;
        // What is not in a cache yet must not look as if it were not there.
        tokio::select! {
            () = stop.cancelled() => return,
            () = filled => {}
        }
        let config = controller::Config::default()
            .concurrency(shared.settings.concurrency)
            .debounce(DEBOUNCE);
        join_all(parts.into_iter().map(|part| {
            let (reconciler, frame) = (Arc::clone(&reconciler), frame.clone());
            part.run(reconciler, frame, config.clone(), stop.clone())
        }))
        .await;
    }
}

impl Part {
    async fn run(
        self,
        reconciler: Arc<JobReconciler>,
        frame: Frame,
        config: controller::Config,
        stop: CancellationToken,
    ) {
        let Self {
            store,
            queue,
            waiting,
        } = self;
        let reconcile = move |job: Arc<Job>, reconciler: Arc<JobReconciler>| {
            let (frame, queue) = (frame.clone(), queue.clone());
            async move {
                let subject = subject(&*job);
                queue.begin(&job.namespace().unwrap_or_default(), &job.name_any());
                // One that is being deleted is still worked on: its teardown.
                let reconcile = reconciler.reconcile(&job).boxed();
                Ok::<_, Infallible>(frame.run(&subject, reconcile).await)
            }
            .boxed()
        };
        let never = |_: Arc<Job>, _: &Infallible, _: Arc<JobReconciler>| Action::await_change();
        let mut ended = std::pin::pin!(applier(
            reconcile,
            never,
            reconciler,
            store,
            waiting.stream::<Job>(stop),
            config,
        ));
        while let Some(outcome) = ended.next().await {
            if let Err(error) = outcome {
                // An object that is gone.
                tracing::debug!(%error, "nothing to reconcile");
            }
        }
    }
}

impl Starting<'_> {
    fn spawn<K>(&mut self, watch: Watch<K>, see: impl FnMut(Seen<'_, K>) + Send + 'static)
    where
        K: Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
        K::DynamicType: Eq + std::hash::Hash + Clone + Send + Sync,
    {
        self.watches
            .spawn(watch.run(self.shared.reporting.clone(), see));
    }

    fn roots(&mut self, roots: Watch<Job>) {
        let (queue, jobs) = (self.queue.clone(), self.jobs.clone());
        self.spawn(roots, move |seen| match seen {
            Seen::Object(job) => add(&queue, job),
            Seen::List => all(&queue, &jobs),
        });
    }

    fn children(&mut self, children: &mut Children) {
        for (kind, resource) in [
            ("Service", ApiResource::erase::<Service>(&())),
            ("NetworkPolicy", ApiResource::erase::<NetworkPolicy>(&())),
            (
                "PersistentVolumeClaim",
                ApiResource::erase::<PersistentVolumeClaim>(&()),
            ),
        ] {
            let client = self.shared.client.clone();
            let api: Api<DynamicObject> = match &self.part {
                None => Api::all_with(client, &resource),
                Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            };
            let part = self.part.as_deref();
            let watch = Watch::new(api, kind, part, Some(ours()), resource.clone());
            children.add(resource, self.part.clone(), watch.store());
            let (queue, jobs) = (self.queue.clone(), self.jobs.clone());
            self.spawn(watch, move |seen| owner_of(&queue, &jobs, &seen));
        }
    }

    fn pods(&mut self) -> Store<Pod> {
        let api = typed(&self.shared.client, self.part.as_deref());
        let watch = Watch::<Pod>::new(api, "Pod", self.part.as_deref(), Some(ours()), ());
        let store = watch.store();
        let (queue, jobs) = (self.queue.clone(), self.jobs.clone());
        self.spawn(watch, move |seen| owner_of(&queue, &jobs, &seen));
        store
    }

    /// A pool wakes the jobs that use it.
    fn pools(&mut self) -> Store<Pool> {
        let api = typed(&self.shared.client, self.part.as_deref());
        let watch = Watch::<Pool>::new(api, meta::POOL_KIND, self.part.as_deref(), None, ());
        let store = watch.store();
        let (queue, jobs) = (self.queue.clone(), self.jobs.clone());
        self.spawn(watch, move |seen| match seen {
            Seen::Object(pool) => {
                let pool = (pool.namespace().unwrap_or_default(), pool.name_any());
                for job in jobs.state_filter(|job: &Job| uses(job, &pool)) {
                    add(&queue, &*job);
                }
            }
            Seen::List => all(&queue, &jobs),
        });
        store
    }
}

async fn filled(children: Children, pods: Stores<Pod>, pools: Stores<Pool>) {
    children.filled().await;
    // An error: the watch ended, which a stop does.
    for (_, store) in &pods {
        let _ = store.wait_until_ready().await;
    }
    for (_, store) in &pools {
        let _ = store.wait_until_ready().await;
    }
}

/// Selects what was made for jobs.
fn ours() -> String {
    format!(
        "{}={},{}",
        labels::APP_MANAGED_BY,
        labels::OPERATOR,
        labels::JOB_UID
    )
}

fn typed<K>(client: &Client, part: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match part {
        None => Api::all(client.clone()),
        Some(namespace) => Api::namespaced(client.clone(), namespace),
    }
}

fn add<K: Resource>(queue: &Queue, object: &K) {
    queue.add(&object.namespace().unwrap_or_default(), &object.name_any());
}

fn all(queue: &Queue, jobs: &Store<Job>) {
    for job in jobs.state() {
        add(queue, &*job);
    }
}

/// The job that an object was made for.
fn owner_of<K: Resource>(queue: &Queue, jobs: &Store<Job>, seen: &Seen<'_, K>) {
    match seen {
        Seen::Object(object) => {
            if let Some(job) = object.labels().get(labels::JOB) {
                queue.add(&object.namespace().unwrap_or_default(), job);
            }
        }
        Seen::List => all(queue, jobs),
    }
}

fn uses(job: &Job, pool: &(String, String)) -> bool {
    let Ok(read) = &job.0 else { return false };
    let namespace = job.namespace().unwrap_or_default();
    match &read.spec.pool_ref {
        Some(reference) => {
            let namespace = reference.namespace.as_ref().unwrap_or(&namespace);
            (namespace, &reference.name) == (&pool.0, &pool.1)
        }
        None => (namespace, job.name_any()) == *pool,
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

fn context(
    shared: &Shared,
    children: Children,
    pods: Stores<Pod>,
    pools: Stores<Pool>,
    queues: Vec<(Option<String>, Queue)>,
    drivers: Drivers,
) -> Context {
    let calls = Calls::new(shared.client.clone(), shared.leadership.clone());
    let metrics = Arc::clone(&shared.metrics);
    Context {
        applier: Applier::new(calls.clone(), field_managers::JOB, Arc::clone(&metrics)),
        calls,
        children,
        pods: Box::new(move |namespace, job| {
            let stores = pods
                .iter()
                .filter(|(part, _)| covers(part.as_deref(), namespace));
            stores
                .flat_map(|(_, store)| {
                    store.state_filter(|pod: &Pod| {
                        pod.metadata.namespace.as_deref() == Some(namespace)
                            && pod.labels().get(labels::JOB).map(String::as_str) == Some(job)
                    })
                })
                .collect()
        }),
        pool: Box::new(move |namespace, name| {
            let (_, store) = pools
                .iter()
                .find(|(part, _)| covers(part.as_deref(), namespace))?;
            store.get(&ObjectRef::new(name).within(namespace))
        }),
        queue: Arc::new(move |namespace, name| {
            for (_, queue) in queues
                .iter()
                .filter(|(part, _)| covers(part.as_deref(), namespace))
            {
                queue.add(namespace, name);
            }
        }),
        drivers,
        rendering: shared.settings.rendering.clone(),
        key: shared.settings.key.clone(),
        teller: Teller::new(
            shared.client.clone(),
            shared.settings.instance.clone(),
            shared.leadership.clone(),
            metrics,
        ),
    }
}

fn covers(part: Option<&str>, namespace: &str) -> bool {
    part.is_none_or(|part| part == namespace)
}
