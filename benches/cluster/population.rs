//! Many pools and jobs that have settled: most jobs have ended, some are suspended, some wait with a driver that no node takes.

use kube::Client;
use rollout_operator::api::meta;
use serde_json::json;

use crate::manifests::{beside, job, named, pool, unschedulable, within};
use crate::plane;

/// Namespaces that they are spread over.
const NAMESPACES: usize = 10;

/// How many there are of each.
#[derive(Clone, Copy)]
pub(crate) struct Population {
    pub(crate) pools: usize,
    pub(crate) finished: usize,
    pub(crate) suspended: usize,
    pub(crate) waiting: usize,
}

impl Population {
    /// Of a thousand jobs nine hundred have ended, ninety are suspended, ten wait.
    pub(crate) fn of(jobs: usize, pools: usize) -> Self {
        let (suspended, waiting) = (jobs * 9 / 100, jobs.div_ceil(100));
        Self {
            pools,
            finished: jobs - suspended - waiting,
            suspended,
            waiting,
        }
    }

    pub(crate) fn jobs(self) -> usize {
        self.finished + self.suspended + self.waiting
    }

    /// Makes them, and waits until each is where it stays.
    pub(crate) async fn make(self, client: &Client) {
        let mut pools = Vec::new();
        for number in 0..NAMESPACES {
            let namespace = namespace_of(number);
            plane::namespace(client, &namespace).await;
            let objects = beside().map(|object| within(object, &namespace));
            plane::create_all(client, &objects).await;
        }
        for number in 0..self.pools {
            let mut pool = pool();
            pool["spec"]["replicas"] = json!(1);
            pools.push(named(
                pool,
                &namespace_of(number),
                &format!("pool-{number}"),
            ));
        }
        plane::create_all(client, &pools).await;
        plane::until("every pool is ready", async || {
            let pools = plane::all(client, meta::POOL_KIND).await;
            pools
                .iter()
                .filter(|pool| plane::holds(pool, "Ready"))
                .count()
                == self.pools
        })
        .await;
        let jobs: Vec<_> = (0..self.jobs())
            .map(|number| {
                let pool = number % self.pools;
                let mut job = named(job(), &namespace_of(pool), &format!("job-{number}"));
                job["spec"]["poolRef"]["name"] = json!(format!("pool-{pool}"));
                if number < self.suspended {
                    job["spec"]["suspend"] = json!(true);
                } else if number < self.suspended + self.waiting {
                    job = unschedulable(job);
                }
                job
            })
            .collect();
        plane::create_all(client, &jobs).await;
        plane::until("every job has settled", async || {
            let jobs = plane::all(client, meta::JOB_KIND).await;
            let in_phase = |phase: &str| {
                let jobs = jobs
                    .iter()
                    .filter(|job| job.data["status"]["phase"] == phase);
                jobs.count()
            };
            in_phase("Succeeded") == self.finished
                && in_phase("Suspended") == self.suspended
                && in_phase("Starting") == self.waiting
        })
        .await;
    }
}

fn namespace_of(number: usize) -> String {
    format!("bench-{}", number % NAMESPACES)
}
