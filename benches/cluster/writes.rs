//! What a job writes to the API in its whole life, from its creation until it is deleted, with real Pods.

use std::time::{Duration, Instant};

use kube::Client;
use kube::api::DeleteParams;
use nix::sys::signal::Signal;
use rollout_operator::api::meta;
use serde_json::{Value, json};

use crate::audit::{self, Audit, End};
use crate::controller::Controller;
use crate::course::Course;
use crate::manifests::{beside, job, named, pool, within};
use crate::plane;

const NAMESPACE: &str = "writes";
const A_WHILE: Duration = Duration::from_secs(5);

pub(crate) async fn run() {
    let client = plane::client().await;
    let controller = Controller::leading().await;
    place(&client, NAMESPACE, &pool()).await;
    one(
        &client,
        "single-turn",
        "job of single turns (examples/quickstart)",
        job(),
    )
    .await;
    let mut agentic = job();
    // The data set's problems are turns enough for a program that talks and does not compute.
    let agent = json!({
        "name": "agent", "image": "localhost/agents:1", "command": ["/agents", "turns", "3"], "resources": small(),
    });
    agentic["spec"]["generate"] = json!({"agentic": {
        "sessionsPerPod": 0, "agent": {"container": {"template": {"spec": {"containers": [agent]}}}},
    }});
    agentic["spec"]["rollout"] =
        json!({"batchSize": 16, "samplesPerPrompt": 4, "concurrency": {"sessions": 8}});
    agentic["spec"]["reward"] = json!({"type": "None"});
    one(
        &client,
        "agentic",
        "job of 64 sessions in eight Pods that are used again",
        agentic,
    )
    .await;
    controller.end(Signal::SIGTERM).await;
}

/// What a Pod asks for on a small node.
pub(crate) fn small() -> Value {
    json!({"requests": {"cpu": "1m", "memory": "32Mi"}})
}

/// A namespace with a pool that is ready.
pub(crate) async fn place(client: &Client, namespace: &str, pool: &Value) {
    plane::namespace(client, namespace).await;
    plane::create_all(client, &beside().map(|object| within(object, namespace))).await;
    let mut pool = within(pool.clone(), namespace);
    pool["spec"]["replicas"] = json!(1);
    plane::create(client, &pool).await;
    plane::until("the pool is ready", async || {
        let pools = plane::all(client, meta::POOL_KIND).await;
        pools.iter().all(|pool| plane::holds(pool, "Ready"))
    })
    .await;
}

/// A job that is small enough for this node.
pub(crate) fn modest(mut job: Value) -> Value {
    job["spec"]["driver"] = json!({
        "resources": small(),
        "template": {"spec": {"initContainers": [{"name": "router", "resources": small()}]}},
    });
    job
}

/// Waits until a job has ended well.
pub(crate) async fn ends(client: &Client, namespace: &str, name: &str) {
    let jobs = plane::objects(client, namespace, meta::JOB_KIND);
    plane::until(&format!("{name} is complete"), async || {
        let job = jobs.get(name).await.unwrap();
        assert!(!plane::holds(&job, "Failed"), "{}", job.data["status"]);
        plane::holds(&job, "Complete")
    })
    .await;
}

async fn one(client: &Client, name: &str, what: &str, job: Value) {
    let mut job = modest(named(job, NAMESPACE, name));
    job["spec"]["output"]["persistentVolumeClaim"]["path"] = json!(name);
    let course = Course::of(client, NAMESPACE, name);
    let audit = Audit::from_now();
    let started = Instant::now();
    plane::create(client, &job).await;
    ends(client, NAMESPACE, name).await;
    let took = started.elapsed();
    audit.quiet(A_WHILE).await;
    let jobs = plane::objects(client, NAMESPACE, meta::JOB_KIND);
    jobs.delete(name, &DeleteParams::default()).await.unwrap();
    plane::until("the job is gone", async || {
        jobs.get_opt(name).await.unwrap().is_none()
    })
    .await;
    audit.quiet(A_WHILE).await;
    let writes = audit.writes();
    let all = audit::count(&writes, End::Written);
    let progress = course.of_progress();
    println!(
        "{what}, {:.0} s, until it is deleted: {} writes, and {progress} of progress; {} dry runs, {} refused",
        took.as_secs_f64(),
        all - progress,
        audit::count(&writes, End::Tried),
        audit::count(&writes, End::Refused),
    );
    println!("  {:?}", audit::by_kind(&writes, End::Written));
    println!("  refused: {:?}", audit::by_kind(&writes, End::Refused));
}
