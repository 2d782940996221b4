//! The jobs of a process: watches that feed the queue, and the reconciler that empties it.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::core::{ApiResource, DeserializeGuard};
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::job::{Context, Drivers, JobReconciler};
use super::manager::Shared;
use super::part::{self, Part, Starting, Stores, add, all, filled, typed};
use super::runtime::apply::Applier;
use super::runtime::calls::Calls;
use super::runtime::children::Children;
use super::runtime::events::Teller;
use super::runtime::queue::Queue;
use super::runtime::reconcile::{Frame, Subject};
use super::runtime::watching::{Seen, Watch};
use crate::api::job::RolloutJob;
use crate::api::meta::{self, field_managers, labels};
use crate::api::pool::SGLangPool;

type Pool = DeserializeGuard<SGLangPool>;
type Job = DeserializeGuard<RolloutJob>;
/// The jobs of a process.
pub(super) struct Jobs {
    shared: Shared,
    parts: Vec<Part<Job>>,
    /// Ends when every cache was filled.
    filled: BoxFuture<'static, ()>,
    reconciler: Arc<JobReconciler>,
    frame: Frame,
}

impl Jobs {
    /// Starts the watches; nothing is reconciled yet.
    pub(super) fn start(shared: &Shared, watches: &mut JoinSet<()>) -> Result<Self, Error> {
        let mut parts = Vec::new();
        let mut children = Children::default();
        let mut pods: Stores<Pod> = Vec::new();
        let mut everywhere = Vec::new();
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
                roots: store.clone(),
            };
            starting.roots(roots);
            starting.children(kinds(), &ours(), labels::JOB, &mut children);
            pods.push((part.clone(), starting.pods(ours(), labels::JOB)));
            everywhere.push((part, queue.clone(), store.clone()));
            parts.push(Part {
                store,
                queue,
                waiting,
            });
        }
        let pools = used_pools(shared, watches, &everywhere);
        let queues = everywhere
            .into_iter()
            .map(|(part, queue, _)| (part, queue))
            .collect();
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
        let look = move |job: Arc<Job>, subject: Subject| {
            let (frame, reconciler) = (frame.clone(), Arc::clone(&reconciler));
            async move {
                // One that is being deleted is still worked on: its teardown.
                let reconcile = reconciler.reconcile(&job).boxed();
                frame.run(&subject, reconcile).await
            }
            .boxed()
        };
        part::run(parts, filled, shared.settings.concurrency, stop, look).await;
    }
}

/// Kinds of what is made for a job, but for its Pods.
fn kinds() -> [(&'static str, ApiResource); 3] {
    [
        ("Service", ApiResource::erase::<Service>(&())),
        ("NetworkPolicy", ApiResource::erase::<NetworkPolicy>(&())),
        (
            "PersistentVolumeClaim",
            ApiResource::erase::<PersistentVolumeClaim>(&()),
        ),
    ]
}

/// A pool wakes the jobs that use it, in whatever namespace they are.
fn used_pools(
    shared: &Shared,
    watches: &mut JoinSet<()>,
    jobs: &[(Option<String>, Queue, Store<Job>)],
) -> Stores<Pool> {
    let mut stores = Vec::new();
    for (part, ..) in jobs {
        let api = typed(&shared.client, part.as_deref());
        let watch = Watch::<Pool>::new(api, meta::POOL_KIND, part.as_deref(), None, ());
        stores.push((part.clone(), watch.store()));
        let jobs = jobs.to_vec();
        let see = move |seen: Seen<'_, Pool>| {
            for (_, queue, jobs) in &jobs {
                wake_users(queue, jobs, &seen);
            }
        };
        watches.spawn(watch.run(shared.reporting.clone(), see));
    }
    stores
}

fn wake_users(queue: &Queue, jobs: &Store<Job>, seen: &Seen<'_, Pool>) {
    match seen {
        Seen::Object(pool) => {
            let pool = (pool.namespace().unwrap_or_default(), pool.name_any());
            for job in jobs.state_filter(|job: &Job| uses(job, &pool)) {
                add(queue, &*job);
            }
        }
        Seen::List => all(queue, jobs),
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
    let parts: Vec<_> = queues.iter().map(|(part, _)| part.clone()).collect();
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
        looks_at: Box::new(move |namespace| {
            let mut parts = parts.iter();
            parts.any(|part| covers(part.as_deref(), namespace))
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
