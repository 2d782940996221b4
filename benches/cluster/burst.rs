//! Many jobs that are made in one moment, where no node takes their drivers.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use nix::sys::signal::Signal;
use rollout_operator::api::meta::{self, labels};
use serde_json::json;

use crate::audit::{self, Audit, End};
use crate::controller::{Controller, JOB};
use crate::manifests::{beside, job, named, pool, unschedulable, within};
use crate::node::Played;
use crate::{count, plane};

const NAMESPACE: &str = "burst";
const A_WHILE: Duration = Duration::from_secs(10);

pub(crate) async fn run() {
    let client = plane::client().await;
    let controller = Controller::leading().await;
    let _node = Played::new(&client).await;
    plane::namespace(&client, NAMESPACE).await;
    plane::create_all(&client, &beside().map(|object| within(object, NAMESPACE))).await;
    plane::create(&client, &within(pool(), NAMESPACE)).await;
    plane::until("the pool is ready", async || {
        let pools = plane::all(&client, meta::POOL_KIND).await;
        pools.iter().all(|pool| plane::holds(pool, "Ready"))
    })
    .await;
    let jobs = count("BENCH_BURST", 200);
    let made: Vec<_> = (0..jobs)
        .map(|number| unschedulable(named(job(), NAMESPACE, &format!("job-{number}"))))
        .collect();
    let audit = Audit::from_now();
    audit.quiet(A_WHILE).await;
    let (before, cpu) = (controller.figures().await, controller.cpu());
    let started = Instant::now();
    join_all(made.iter().map(|job| plane::create(&client, job))).await;
    let created = started.elapsed();
    let drivers: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = ListParams::default().labels(&format!("{}=driver", labels::COMPONENT));
    plane::until("every job has a driver", async || {
        // A list costs the API server as much as ten other calls.
        tokio::time::sleep(Duration::from_secs(1)).await;
        drivers.list_metadata(&params).await.unwrap().items.len() == jobs
    })
    .await;
    let took = started.elapsed();
    audit.quiet(A_WHILE).await;
    let after = controller.figures().await;
    let cpu = (controller.cpu() - cpu).total();
    let durations = after.durations(JOB, &before);
    let writes = audit.writes();
    println!(
        "{jobs} jobs at once (made in {:.1} s), no node for their drivers: every driver asked for after {:.1} s; {:.0} reconciles, \
         p50 at most {:.0} ms, p99 at most {:.0} ms, longest at most {:.0} ms, {:.1} % within 100 ms; {} failed; {:.1} s of CPU",
        created.as_secs_f64(),
        took.as_secs_f64(),
        durations.all(),
        durations.at_most(50.0),
        durations.at_most(99.0),
        durations.at_most(100.0),
        durations.percent_within(0.1),
        after.failed_reconciles() - before.failed_reconciles(),
        cpu.as_secs_f64(),
    );
    let of_each = |kind: End| {
        json!(audit::count(&writes, kind) * 10 / jobs)
            .as_f64()
            .unwrap()
            / 10.0
    };
    println!(
        "  of each job: {:.1} writes, {:.1} dry runs, {:.1} refused, {:.1} reads: {:?}",
        of_each(End::Written),
        of_each(End::Tried),
        of_each(End::Refused),
        json!((after.calls("get") - before.calls("get")) * 10 / jobs)
            .as_f64()
            .unwrap()
            / 10.0,
        audit::by_kind(&writes, End::Written),
    );
    controller.end(Signal::SIGTERM).await;
}
