//! The pools of a process: watches that feed the queue, and the reconciler that empties it.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::ApiResource;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::manager::Shared;
use super::part::{self, Part, Starting, Stores, filled};
use super::pool::{Context, OfPool, PoolReconciler, States, Surveys};
use super::roots::{Job, Pool, Queues, Roots, pool_of};
use super::runtime::apply::Applier;
use super::runtime::calls::Calls;
use super::runtime::children::Children;
use super::runtime::queue::Queue;
use super::runtime::reconcile::{Frame, Subject};
use crate::api::meta::{self, field_managers, labels};
use crate::resources::labels::Component;

/// The pools of a process.
pub(super) struct Pools {
    shared: Shared,
    parts: Vec<Part<Pool>>,
    /// Ends when every cache was filled.
    filled: BoxFuture<'static, ()>,
    reconciler: Arc<PoolReconciler>,
    frame: Frame,
}

impl Pools {
    /// Starts the watches of what is made for pools; nothing is reconciled yet.
    pub(super) fn start(shared: &Shared, watches: &mut JoinSet<()>, roots: &Roots) -> Self {
        let mut parts = Vec::new();
        let mut children = Children::default();
        let mut pods: Stores<Pod> = Vec::new();
        for (part, store) in roots.pools() {
            let (queue, waiting) = Queue::new(meta::POOL_KIND, Arc::clone(&shared.metrics));
            let mut starting = Starting {
                shared,
                watches,
                part: part.clone(),
                queue: queue.clone(),
                roots: store.clone(),
            };
            // Not what was made for jobs.
            let selector = format!("{},{}", ours(), labels::POOL);
            starting.children(kinds(), &selector, labels::POOL, &mut children);
            // A job's Pods have the label of its pool too.
            let selector = format!("{selector},!{}", labels::JOB);
            pods.push((part.clone(), starting.pods(selector, labels::POOL)));
            parts.push(Part {
                namespace: part,
                store,
                queue,
                waiting,
            });
        }
        let jobs = roots.jobs();
        let filled = filled(children.clone(), pods.clone(), jobs.clone()).boxed();
        let there = There::of(&parts);
        let context = context(shared, children, pods, jobs, there);
        let reconciler = Arc::new(PoolReconciler::new(context));
        Self {
            frame: Frame::new(meta::POOL_KIND, Arc::clone(&shared.metrics)),
            shared: shared.clone(),
            parts,
            filled,
            reconciler,
        }
    }

    /// The queues of what is reconciled.
    pub(super) fn queues(&self) -> Queues {
        part::queues(&self.parts)
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
        let (of_frame, of_reconciler) = (frame.clone(), Arc::clone(&reconciler));
        let forget = move |uid: &str| {
            of_frame.forget(uid);
            of_reconciler.forget(uid);
        };
        let look = move |pool: Arc<Pool>, subject: Subject| {
            let (frame, reconciler) = (frame.clone(), Arc::clone(&reconciler));
            async move {
                if pool.meta().deletion_timestamp.is_some() {
                    frame.forget(&subject.uid);
                    reconciler.forget(&subject.uid);
                    return Action::await_change();
                }
                let reconcile = reconciler.reconcile(&pool).boxed();
                frame.run(&subject, reconcile).await
            }
            .boxed()
        };
        let concurrency = shared.settings.concurrency;
        part::run(parts, filled, concurrency, stop, look, forget).await;
    }
}

/// Kinds of what is made for a pool.
fn kinds() -> [(&'static str, ApiResource); 5] {
    [
        ("Deployment", ApiResource::erase::<Deployment>(&())),
        ("Service", ApiResource::erase::<Service>(&())),
        ("ServiceAccount", ApiResource::erase::<ServiceAccount>(&())),
        ("NetworkPolicy", ApiResource::erase::<NetworkPolicy>(&())),
        (
            "PodDisruptionBudget",
            ApiResource::erase::<PodDisruptionBudget>(&()),
        ),
    ]
}

/// Selects what the operator made.
fn ours() -> String {
    format!("{}={}", labels::APP_MANAGED_BY, labels::OPERATOR)
}

/// The pools themselves.
struct There {
    there: OfPool<Option<String>>,
    queue: OfPool<()>,
}

impl There {
    fn of(parts: &[Part<Pool>]) -> Self {
        let stores: Vec<_> = parts.iter().map(|part| part.store.clone()).collect();
        let queues: Vec<_> = parts.iter().map(|part| part.queue.clone()).collect();
        Self {
            there: Box::new(move |namespace, name| {
                let reference = ObjectRef::new(name).within(namespace);
                let pool = stores.iter().find_map(|store| store.get(&reference))?;
                pool.uid()
            }),
            // A name that a part does not have is looked at, and forgotten.
            queue: Box::new(move |namespace, name| {
                for queue in &queues {
                    queue.add(namespace, name);
                }
            }),
        }
    }
}

fn context(
    shared: &Shared,
    children: Children,
    pods: Stores<Pod>,
    jobs: Stores<Job>,
    pools: There,
) -> Context {
    let calls = Calls::new(shared.client.clone(), shared.leadership.clone());
    Context {
        applier: Applier::new(
            calls.clone(),
            field_managers::POOL,
            Arc::clone(&shared.metrics),
        ),
        calls,
        children,
        survey_pods: of_component(pods.clone(), Component::Survey),
        pods: of_component(pods, Component::Engine),
        bound_jobs: Box::new(move |namespace, pool| {
            let bound = jobs.iter().flat_map(|(_, store)| {
                store.state_filter(|job: &Job| is_bound(job, namespace, pool))
            });
            i32::try_from(bound.count()).unwrap_or(i32::MAX)
        }),
        there: Arc::new(pools.there),
        queue: Arc::new(pools.queue),
        surveys: Surveys::default(),
        states: States::default(),
        rendering: shared.settings.rendering.clone(),
        key: shared.settings.key.clone(),
        teller: shared.teller.clone(),
    }
}

/// A pool's Pods of one component.
fn of_component(pods: Stores<Pod>, component: Component) -> OfPool<Vec<Arc<Pod>>> {
    Box::new(move |namespace, pool| {
        let stores = pods.iter().map(|(_, store)| store);
        stores
            .flat_map(|store| {
                store.state_filter(|pod: &Pod| {
                    let label = |name| pod.labels().get(name).map(String::as_str);
                    pod.metadata.namespace.as_deref() == Some(namespace)
                        && label(labels::POOL) == Some(pool)
                        && label(labels::COMPONENT) == Some(component.value())
                })
            })
            .collect()
    })
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
