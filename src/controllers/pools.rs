//! The pools of a process: watches that feed the queue, and the reconciler that empties it.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, DeserializeGuard};
use kube::runtime::controller::{self, Action, applier};
use kube::runtime::reflector::Store;
use kube::{Client, Resource, ResourceExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::manager::Shared;
use super::pool::{Context, PoolReconciler};
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

/// The pools of a process.
pub(super) struct Pools {
    shared: Shared,
    parts: Vec<Part>,
    /// Ends when every cache was filled.
    filled: BoxFuture<'static, ()>,
    reconciler: Arc<PoolReconciler>,
    frame: Frame,
}

/// The pools of a namespace, or of the cluster.
struct Part {
    store: Store<Pool>,
    queue: Queue,
    waiting: Waiting,
}

/// The watches of one namespace, or of the cluster.
struct Starting<'a> {
    shared: &'a Shared,
    watches: &'a mut JoinSet<()>,
    part: Option<String>,
    queue: Queue,
    pools: Store<Pool>,
}

impl Pools {
    /// Starts the watches; nothing is reconciled yet.
    pub(super) fn start(shared: &Shared, watches: &mut JoinSet<()>) -> Self {
        let mut parts = Vec::new();
        let mut children = Children::default();
        let mut pods: Stores<Pod> = Vec::new();
        let mut jobs: Stores<Job> = Vec::new();
        for part in shared.settings.scope.parts() {
            let (queue, waiting) = Queue::new(meta::POOL_KIND, Arc::clone(&shared.metrics));
            let api = typed(&shared.client, part.as_deref());
            // No selector: it would hide users' objects (P17). Nor a predicate on the generation: it would swallow deletions (P5).
            let roots = Watch::<Pool>::new(api, meta::POOL_KIND, part.as_deref(), None, ());
            let store = roots.store();
            let mut starting = Starting {
                shared,
                watches,
                part: part.clone(),
                queue: queue.clone(),
                pools: store.clone(),
            };
            starting.roots(roots);
            starting.children(&mut children);
            pods.push((part.clone(), starting.pods()));
            jobs.push((part.clone(), starting.jobs()));
            parts.push(Part {
                store,
                queue,
                waiting,
            });
        }
        let filled = filled(children.clone(), pods.clone(), jobs.clone()).boxed();
        let context = context(shared, children, pods, jobs);
        let reconciler = Arc::new(PoolReconciler::new(context));
        Self {
            frame: Frame::new(meta::POOL_KIND, Arc::clone(&shared.metrics)),
            shared: shared.clone(),
            parts,
            filled,
            reconciler,
        }
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
        reconciler: Arc<PoolReconciler>,
        frame: Frame,
        config: controller::Config,
        stop: CancellationToken,
    ) {
        let Self {
            store,
            queue,
            waiting,
        } = self;
        let reconcile = move |pool: Arc<Pool>, reconciler: Arc<PoolReconciler>| {
            let (frame, queue) = (frame.clone(), queue.clone());
            async move {
                let subject = subject(&*pool);
                queue.begin(&pool.namespace().unwrap_or_default(), &pool.name_any());
                if pool.meta().deletion_timestamp.is_some() {
                    frame.forget(&subject.uid);
                    reconciler.forget(&subject.uid);
                    return Ok::<_, Infallible>(Action::await_change());
                }
                let reconcile = reconciler.reconcile(&pool).boxed();
                Ok(frame.run(&subject, reconcile).await)
            }
            .boxed()
        };
        let never = |_: Arc<Pool>, _: &Infallible, _: Arc<PoolReconciler>| Action::await_change();
        let mut ended = std::pin::pin!(applier(
            reconcile,
            never,
            reconciler,
            store,
            waiting.stream::<Pool>(stop),
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

    fn roots(&mut self, roots: Watch<Pool>) {
        let (queue, pools) = (self.queue.clone(), self.pools.clone());
        self.spawn(roots, move |seen| match seen {
            Seen::Object(pool) => add(&queue, pool),
            Seen::List => all(&queue, &pools),
        });
    }

    fn children(&mut self, children: &mut Children) {
        for (kind, resource) in [
            ("Deployment", ApiResource::erase::<Deployment>(&())),
            ("Service", ApiResource::erase::<Service>(&())),
            ("ServiceAccount", ApiResource::erase::<ServiceAccount>(&())),
            ("NetworkPolicy", ApiResource::erase::<NetworkPolicy>(&())),
            (
                "PodDisruptionBudget",
                ApiResource::erase::<PodDisruptionBudget>(&()),
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
            let (queue, pools) = (self.queue.clone(), self.pools.clone());
            self.spawn(watch, move |seen| owner_of(&queue, &pools, &seen));
        }
    }

    fn pods(&mut self) -> Store<Pod> {
        let api = typed(&self.shared.client, self.part.as_deref());
        let selector = format!("{},{}", ours(), labels::POOL);
        let watch = Watch::<Pod>::new(api, "Pod", self.part.as_deref(), Some(selector), ());
        let store = watch.store();
        let (queue, pools) = (self.queue.clone(), self.pools.clone());
        self.spawn(watch, move |seen| owner_of(&queue, &pools, &seen));
        store
    }

    fn jobs(&mut self) -> Store<Job> {
        let api = typed(&self.shared.client, self.part.as_deref());
        let watch = Watch::<Job>::new(api, meta::JOB_KIND, self.part.as_deref(), None, ());
        let store = watch.store();
        let (queue, pools) = (self.queue.clone(), self.pools.clone());
        self.spawn(watch, move |seen| match seen {
            Seen::Object(job) => {
                if let Some((namespace, name)) = pool_of(job) {
                    queue.add(&namespace, &name);
                }
            }
            Seen::List => all(&queue, &pools),
        });
        store
    }
}

async fn filled(children: Children, pods: Stores<Pod>, jobs: Stores<Job>) {
    children.filled().await;
    // An error: the watch ended, which a stop does.
    for (_, store) in &pods {
        let _ = store.wait_until_ready().await;
    }
    for (_, store) in &jobs {
        let _ = store.wait_until_ready().await;
    }
}

/// Selects what the operator made.
fn ours() -> String {
    format!("{}={}", labels::APP_MANAGED_BY, labels::OPERATOR)
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

fn all(queue: &Queue, pools: &Store<Pool>) {
    for pool in pools.state() {
        add(queue, &*pool);
    }
}

/// The pool that an object was made for. What else has labels of ours finds no pool of that name.
fn owner_of<K: Resource>(queue: &Queue, pools: &Store<Pool>, seen: &Seen<'_, K>) {
    match seen {
        Seen::Object(object) => {
            if let Some(pool) = object.labels().get(labels::POOL) {
                queue.add(&object.namespace().unwrap_or_default(), pool);
            }
        }
        Seen::List => all(queue, pools),
    }
}

fn pool_of(job: &Job) -> Option<(String, String)> {
    let job = job.0.as_ref().ok()?;
    let reference = job.spec.pool_ref.as_ref()?;
    let namespace = reference.namespace.clone().or_else(|| job.namespace())?;
    Some((namespace, reference.name.clone()))
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

fn context(shared: &Shared, children: Children, pods: Stores<Pod>, jobs: Stores<Job>) -> Context {
    let calls = Calls::new(shared.client.clone(), shared.leadership.clone());
    let metrics = Arc::clone(&shared.metrics);
    Context {
        applier: Applier::new(calls.clone(), field_managers::POOL, Arc::clone(&metrics)),
        calls,
        children,
        pods: Box::new(move |namespace, pool| {
            let stores = pods.iter().map(|(_, store)| store);
            stores
                .flat_map(|store| {
                    store.state_filter(|pod: &Pod| {
                        pod.metadata.namespace.as_deref() == Some(namespace)
                            && pod.labels().get(labels::POOL).map(String::as_str) == Some(pool)
                            && pod.labels().get(labels::COMPONENT).map(String::as_str)
                                == Some("engine")
                    })
                })
                .collect()
        }),
        bound_jobs: Box::new(move |namespace, pool| {
            let bound = jobs.iter().flat_map(|(_, store)| {
                store.state_filter(|job: &Job| is_bound(job, namespace, pool))
            });
            i32::try_from(bound.count()).unwrap_or(i32::MAX)
        }),
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

fn is_bound(job: &Job, namespace: &str, pool: &str) -> bool {
    let ended = job
        .0
        .as_ref()
        .ok()
        .and_then(|job| job.status.as_ref())
        .is_some_and(|status| status.completion_time.is_some());
    !ended
        && pool_of(job)
            .is_some_and(|bound| (bound.0.as_str(), bound.1.as_str()) == (namespace, pool))
}
