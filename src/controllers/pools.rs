//! The pools of a process: watches that feed the queue, and the reconciler that empties it.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{ApiResource, DeserializeGuard};
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::manager::Shared;
use super::part::{self, Part, Starting, Stores, all, filled, typed};
use super::pool::{Context, OfPool, PoolReconciler, States, Surveys};
use super::runtime::apply::Applier;
use super::runtime::calls::Calls;
use super::runtime::children::Children;
use super::runtime::events::Teller;
use super::runtime::queue::Queue;
use super::runtime::reconcile::{Frame, Subject};
use super::runtime::watching::{Seen, Watch};
use super::trimming;
use crate::api::job::RolloutJob;
use crate::api::meta::{self, field_managers, labels};
use crate::api::pool::SGLangPool;
use crate::resources::labels::Component;

type Pool = DeserializeGuard<SGLangPool>;
type Job = DeserializeGuard<RolloutJob>;
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
                roots: store.clone(),
            };
            starting.roots(roots);
            starting.children(kinds(), &ours(), labels::POOL, &mut children);
            // A job's Pods have the label of its pool too.
            let selector = format!("{},{},!{}", ours(), labels::POOL, labels::JOB);
            pods.push((part.clone(), starting.pods(selector, labels::POOL)));
            jobs.push((part.clone(), bound_jobs(&mut starting)));
            parts.push(Part {
                store,
                queue,
                waiting,
            });
        }
        let filled = filled(children.clone(), pods.clone(), jobs.clone()).boxed();
        let roots = Roots::of(&parts);
        let context = context(shared, children, pods, jobs, roots);
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
        part::run(parts, filled, shared.settings.concurrency, stop, look).await;
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

/// A job wakes the pool that it uses.
fn bound_jobs(starting: &mut Starting<'_, Pool>) -> Store<Job> {
    let part = starting.part.clone();
    let api = typed(&starting.shared.client, part.as_deref());
    let watch = Watch::<Job>::new(api, meta::JOB_KIND, part.as_deref(), None, ())
        .trimmed(trimming::bound_job);
    let store = watch.store();
    let (queue, pools) = (starting.queue.clone(), starting.roots.clone());
    starting.spawn(watch, move |seen| match seen {
        Seen::Object(job) => {
            if let Some((namespace, name)) = pool_of(job) {
                queue.add(&namespace, &name);
            }
        }
        Seen::List => all(&queue, &pools),
    });
    store
}

/// Selects what the operator made.
fn ours() -> String {
    format!("{}={}", labels::APP_MANAGED_BY, labels::OPERATOR)
}

fn pool_of(job: &Job) -> Option<(String, String)> {
    let job = job.0.as_ref().ok()?;
    let Some(reference) = &job.spec.pool_ref else {
        // A pool of its own has its name.
        return Some((job.namespace()?, job.name_any()));
    };
    let namespace = reference.namespace.clone().or_else(|| job.namespace())?;
    Some((namespace, reference.name.clone()))
}

/// The pools themselves.
struct Roots {
    there: OfPool<Option<String>>,
    queue: OfPool<()>,
}

impl Roots {
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
    roots: Roots,
) -> Context {
    let calls = Calls::new(shared.client.clone(), shared.leadership.clone());
    let metrics = Arc::clone(&shared.metrics);
    Context {
        applier: Applier::new(calls.clone(), field_managers::POOL, Arc::clone(&metrics)),
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
        there: Arc::new(roots.there),
        queue: Arc::new(roots.queue),
        surveys: Surveys::default(),
        states: States::default(),
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
