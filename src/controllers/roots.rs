//! The watches of pools and jobs themselves: one of each kind and namespace, read by both controllers.
//!
//! A pool and the jobs that use it wake each other, in whatever namespaces they are. No selector: it would hide users' objects (P17). Nor a
//! predicate on the generation: it would swallow deletions (P5).

use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::Store;
use tokio::task::JoinSet;

use super::manager::Shared;
use super::part::{Stores, add, all, covers, typed};
use super::runtime::queue::Queue;
use super::runtime::watching::{Seen, Watch};
use crate::api::job::RolloutJob;
use crate::api::meta;
use crate::api::pool::SGLangPool;

pub(super) type Pool = DeserializeGuard<SGLangPool>;
pub(super) type Job = DeserializeGuard<RolloutJob>;

/// Queues of one kind, by namespace; none: the cluster's.
pub(super) type Queues = Vec<(Option<String>, Queue)>;

/// Watches that do not run yet.
pub(super) struct Roots {
    parts: Vec<Part>,
}

struct Part {
    namespace: Option<String>,
    pools: Watch<Pool>,
    jobs: Watch<Job>,
}

impl Roots {
    /// The watches of a process.
    pub(super) fn of(shared: &Shared) -> Self {
        let parts = shared.settings.scope.parts().into_iter().map(|part| {
            let (client, place) = (&shared.client, part.as_deref());
            Part {
                pools: Watch::new(typed(client, place), meta::POOL_KIND, place, None, ()),
                jobs: Watch::new(typed(client, place), meta::JOB_KIND, place, None, ()),
                namespace: part,
            }
        });
        Self {
            parts: parts.collect(),
        }
    }

    /// Caches of the pools.
    pub(super) fn pools(&self) -> Stores<Pool> {
        let parts = self.parts.iter();
        parts
            .map(|part| (part.namespace.clone(), part.pools.store()))
            .collect()
    }

    /// Caches of the jobs.
    pub(super) fn jobs(&self) -> Stores<Job> {
        let parts = self.parts.iter();
        parts
            .map(|part| (part.namespace.clone(), part.jobs.store()))
            .collect()
    }

    /// Watches. What changes is put into the queues.
    pub(super) fn watch(
        self,
        shared: &Shared,
        watches: &mut JoinSet<()>,
        pool_queues: Queues,
        job_queues: Queues,
    ) {
        let wakes = Wakes {
            pools: self.pools(),
            jobs: self.jobs(),
            pool_queues,
            job_queues,
        };
        for Part { pools, jobs, .. } in self.parts {
            let (of_pools, of_jobs) = (wakes.clone(), wakes.clone());
            let reporting = &shared.reporting;
            watches.spawn(pools.run(reporting.clone(), move |seen| of_pools.pool(&seen)));
            watches.spawn(jobs.run(reporting.clone(), move |seen| of_jobs.job(&seen)));
        }
    }
}

#[derive(Clone)]
struct Wakes {
    pools: Stores<Pool>,
    jobs: Stores<Job>,
    pool_queues: Queues,
    job_queues: Queues,
}

impl Wakes {
    /// A pool wakes itself and the jobs that use it.
    fn pool(&self, seen: &Seen<'_, Pool>) {
        let Seen::Object(pool) = seen else {
            return self.everything();
        };
        let key = (pool.namespace().unwrap_or_default(), pool.name_any());
        wake(&self.pool_queues, &key);
        for ((_, queue), (_, jobs)) in self.job_queues.iter().zip(&self.jobs) {
            let uses = |job: &Job| pool_of(job).as_ref() == Some(&key);
            for job in jobs.state_filter(uses) {
                add(queue, &*job);
            }
        }
    }

    /// A job wakes itself and the pool that it uses.
    fn job(&self, seen: &Seen<'_, Job>) {
        let Seen::Object(job) = seen else {
            return self.everything();
        };
        let key = (job.namespace().unwrap_or_default(), job.name_any());
        wake(&self.job_queues, &key);
        if let Some(pool) = pool_of(job) {
            wake(&self.pool_queues, &pool);
        }
    }

    fn everything(&self) {
        every(&self.pool_queues, &self.pools);
        every(&self.job_queues, &self.jobs);
    }
}

/// A name that a part does not have is looked at, and forgotten.
fn wake(queues: &Queues, (namespace, name): &(String, String)) {
    let here = queues
        .iter()
        .filter(|(part, _)| covers(part.as_deref(), namespace));
    here.for_each(|(_, queue)| queue.add(namespace, name));
}

fn every<K>(queues: &Queues, stores: &[(Option<String>, Store<K>)])
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    for ((_, queue), (_, store)) in queues.iter().zip(stores) {
        all(queue, store);
    }
}

/// Namespace and name of the pool that a job uses.
pub(super) fn pool_of(job: &Job) -> Option<(String, String)> {
    let job = job.0.as_ref().ok()?;
    let namespace = job.namespace()?;
    Some(match &job.spec.pool_ref {
        Some(reference) => (
            reference.namespace.clone().unwrap_or(namespace),
            reference.name.clone(),
        ),
        // A pool of its own has its name.
        None => (namespace, job.name_any()),
    })
}
