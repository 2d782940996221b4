//! The jobs of a process: watches that feed the queue, and the reconciler that empties it.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::core::ApiResource;
use kube::runtime::reflector::ObjectRef;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::job::{Context, Drivers, JobReconciler};
use super::manager::Shared;
use super::part::{self, Part, Starting, Stores, covers, filled};
use super::roots::{Job, Pool, Queues, Roots};
use super::runtime::apply::Applier;
use super::runtime::calls::Calls;
use super::runtime::children::Children;
use super::runtime::queue::Queue;
use super::runtime::reconcile::{Frame, Subject};
use crate::api::meta::{self, field_managers, labels};

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
    /// Starts the watches of what is made for jobs; nothing is reconciled yet.
    pub(super) fn start(
        shared: &Shared,
        watches: &mut JoinSet<()>,
        roots: &Roots,
    ) -> Result<Self, Error> {
        let mut parts = Vec::new();
        let mut children = Children::default();
        let mut pods: Stores<Pod> = Vec::new();
        for (part, store) in roots.jobs() {
            let (queue, waiting) = Queue::new(meta::JOB_KIND, Arc::clone(&shared.metrics));
            let mut starting = Starting {
                shared,
                watches,
                part: part.clone(),
                queue: queue.clone(),
                roots: store.clone(),
            };
            starting.children(kinds(), &ours(), labels::JOB, &mut children);
            pods.push((part.clone(), starting.pods(ours(), labels::JOB)));
            parts.push(Part {
                namespace: part,
                store,
                queue,
                waiting,
            });
        }
        let pools = roots.pools();
        let filled = filled(children.clone(), pods.clone(), pools.clone()).boxed();
        let drivers = Drivers::new().map_err(|error| {
            Error::call(
                "make",
                "a client for drivers",
                kube::Error::Service(error.into()),
            )
        })?;
        let queues = part::queues(&parts);
        let context = context(shared, children, pods, pools, queues, drivers);
        Ok(Self {
            frame: Frame::new(meta::JOB_KIND, Arc::clone(&shared.metrics)),
            shared: shared.clone(),
            parts,
            filled,
            reconciler: Arc::new(JobReconciler::new(context)),
        })
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
        let look = move |job: Arc<Job>, subject: Subject| {
            let (frame, reconciler) = (frame.clone(), Arc::clone(&reconciler));
            async move {
                // One that is being deleted is still worked on: its teardown.
                let reconcile = reconciler.reconcile(&job).boxed();
                frame.run(&subject, reconcile).await
            }
            .boxed()
        };
        let concurrency = shared.settings.concurrency;
        part::run(parts, filled, concurrency, stop, look, forget).await;
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

/// Selects what was made for jobs.
fn ours() -> String {
    format!(
        "{}={},{}",
        labels::APP_MANAGED_BY,
        labels::OPERATOR,
        labels::JOB_UID
    )
}

fn context(
    shared: &Shared,
    children: Children,
    pods: Stores<Pod>,
    pools: Stores<Pool>,
    queues: Queues,
    drivers: Drivers,
) -> Context {
    let calls = Calls::new(shared.client.clone(), shared.leadership.clone());
    let parts: Vec<_> = queues.iter().map(|(part, _)| part.clone()).collect();
    Context {
        applier: Applier::new(
            calls.clone(),
            field_managers::JOB,
            Arc::clone(&shared.metrics),
        ),
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
        teller: shared.teller.clone(),
    }
}
