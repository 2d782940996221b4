//! One controller follows another while jobs are in flight: nothing is started twice, and every job ends as if nothing had been.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use nix::sys::signal::Signal;
use rollout_operator::api::meta::labels;
use serde_json::{Value, json};

use super::controller::{Controller, until};
use super::jobs::place::Place;
use super::pools::condition;
use crate::agents::audit::{self, Write};
use crate::agents::{agents, directory};
use crate::packaging::upgrade::{NEXT, tag_next};

/// The lease as it is by default; in tests of the election itself it is shorter, and a busy machine deposes its holder.
const LEASE_SECONDS: u64 = 15;
/// How long jobs may take that are followed to their end.
const LIMIT: Duration = Duration::from_mins(4);
/// Jobs of every way to run.
const JOBS: [&str; 3] = ["single", "own", "reused"];

async fn candidate(namespace: &str, name: &str) -> Controller {
    Controller::candidate(namespace, name, LEASE_SECONDS).await
}

/// One that leads, in the place's own controller's stead.
async fn led(name: &str) -> Place {
    let mut place = Place::new(name).await;
    place.controller.signal(Signal::SIGTERM);
    place.controller.end().await;
    place.controller = candidate(&place.namespace, "first").await;
    until("the first leads", &place.controller, async || {
        place.controller.leads().await
    })
    .await;
    place
}

fn spec(job: &str) -> Value {
    let generate = match job {
        "single" => json!({"singleTurn": {}}),
        ways => {
            let mut agentic = agents(&["turns", "3"], &json!([]), "marks");
            agentic["sessionsPerPod"] = json!(u8::from(ways == "own"));
            json!({"agentic": agentic})
        }
    };
    let rows: Vec<_> = (0..12)
        .map(|row| json!({"prompt": [{"role": "user", "content": format!("{row}?")}]}))
        .collect();
    json!({
        "dataset": {"inline": rows},
        "rollout": {"batchSize": 12, "samplesPerPrompt": 2, "concurrency": {"sessions": 2, "requestsPerEngine": 1}},
        "sampling": {"maxNewTokens": 400, "minNewTokens": 400},
        "generate": generate,
    })
}

fn kept(status: &Value) -> i64 {
    status["progress"]["groups"]["kept"].as_i64().unwrap_or(0)
}

/// Starts the jobs, and waits until each has some of its groups.
async fn in_flight(place: &Place) {
    directory(place, "marks").await;
    place.becomes_ready("pool").await;
    for job in JOBS {
        place.job(job, &spec(job)).await;
    }
    for job in JOBS {
        place
            .comes_true(&format!("{job} is under way"), LIMIT, async || {
                kept(&place.status(job).await) > 0
            })
            .await;
    }
}

async fn is_over(jobs: &Api<DynamicObject>, job: &str) -> bool {
    condition(jobs, job, "Complete").await == "True/TargetReached"
}

/// The next controller writes how jobs get on.
async fn goes_on(place: &Place, controller: &Controller) {
    let mut before = BTreeMap::new();
    for job in JOBS {
        let status = place.status(job).await;
        before.insert(job, kept(&status));
    }
    until("jobs go on", controller, async || {
        for (job, before) in &before {
            if kept(&place.status(job).await) > *before {
                return true;
            }
        }
        false
    })
    .await;
}

/// All jobs end whole: one attempt, no sample run again, no Pod made twice.
async fn end_whole(place: Place) {
    for job in JOBS {
        place
            .comes_true(&format!("{job} is complete"), LIMIT, async || {
                is_over(&place.jobs, job).await
            })
            .await;
        let status = place.status(job).await;
        assert_eq!(status["attempt"], 1, "{job}: {status}");
        assert_eq!(kept(&status), 12, "{job}: {status}");
        assert_eq!(
            status["progress"]["sessions"]["infraFailed"], 0,
            "{job}: {status}"
        );
        assert_eq!(status["recentFailures"], Value::Null, "{job}: {status}");
        place.nothing_left(job).await;
        let driver = format!("{job}-driver-1");
        assert_eq!(place.of::<Pod>(job).await, std::slice::from_ref(&driver));
        let driver = place.all::<Pod>().get(&driver).await.unwrap();
        let containers = driver.status.unwrap().container_statuses.unwrap();
        assert_eq!(containers[0].restart_count, 0, "{job}");
        let mut made: BTreeMap<String, usize> = BTreeMap::new();
        for name in audit::writes(&place.namespace, job)
            .iter()
            .filter_map(Write::pod_made)
        {
            *made.entry(name.to_owned()).or_default() += 1;
        }
        assert!(made.values().all(|times| *times == 1), "{job}: {made:?}");
        let agents = made.keys().filter(|name| name.contains("-agent-")).count();
        match job {
            "own" => assert_eq!(agents, 24, "{made:?}"),
            "reused" => assert_eq!(agents, 2, "{made:?}"),
            _ => assert_eq!(agents, 0, "{made:?}"),
        }
        place.verify_in(&format!("verify-{job}"), job).await;
    }
    let script = "/bin/busybox ls /data/marks | /bin/busybox wc -l";
    let command = ["/bin/busybox", "sh", "-c", script];
    let begun = place
        .run("count", "localhost/tiny:1", &command, 65532)
        .await;
    assert_eq!(begun.trim(), "48", "sessions that were begun");
    place.end().await;
}

/// UIDs of the pool's engines, and how often their containers have started again.
async fn engines(place: &Place) -> Vec<(String, i32)> {
    let selector = format!("{}=pool,{}=engine", labels::POOL, labels::COMPONENT);
    let params = ListParams::default().labels(&selector);
    let pods = place.all::<Pod>().list(&params).await.unwrap();
    let life = |pod: &Pod| {
        let status = pod.status.clone().unwrap_or_default();
        let containers = [status.init_container_statuses, status.container_statuses];
        let restarts = containers.into_iter().flatten().flatten();
        let restarts = restarts.map(|container| container.restart_count).sum();
        (pod.uid().unwrap(), restarts)
    };
    pods.items.iter().map(life).collect()
}

/// Pods of agents that a version made.
async fn agents_of(place: &Place, version: &str) -> usize {
    let selector = format!(
        "{}=agent,{}={version}",
        labels::COMPONENT,
        labels::APP_VERSION
    );
    let params = ListParams::default().labels(&selector);
    let pods = place.all::<Pod>().list(&params).await.unwrap();
    pods.items.len()
}

#[tokio::test]
async fn the_next_version_takes_over_jobs_and_engines_as_they_run() {
    const VERSION: &str = "99.9.9";
    tag_next().await;
    let mut place = led("next-version").await;
    in_flight(&place).await;
    let before = engines(&place).await;
    assert_eq!(before.len(), 1);
    place.controller.signal(Signal::SIGTERM);
    place.controller.end().await;

    let next = Controller::of_version(&place.namespace, VERSION, NEXT).await;
    place.controller = next;
    goes_on(&place, &place.controller).await;
    // It makes agents for drivers and routers of the version before.
    until("it makes agents", &place.controller, async || {
        agents_of(&place, VERSION).await > 0
    })
    .await;
    let deployments = place.all::<Deployment>();
    until("the pool is its own", &place.controller, async || {
        let engine = deployments.get("pool-engine").await.unwrap();
        engine.labels()[labels::APP_VERSION] == VERSION
    })
    .await;
    for job in JOBS {
        place
            .comes_true(&format!("{job} is complete"), LIMIT, async || {
                is_over(&place.jobs, job).await
            })
            .await;
        let driver = place.all::<Pod>().get(&format!("{job}-driver-1")).await;
        let driver = driver.unwrap();
        assert_ne!(driver.labels()[labels::APP_VERSION], VERSION);
    }
    assert_eq!(engines(&place).await, before);
    end_whole(place).await;
}

#[tokio::test]
async fn a_leader_that_slept_past_its_lease_starts_nothing_twice() {
    let mut place = led("slept").await;
    let second = candidate(&place.namespace, "second").await;
    in_flight(&place).await;
    place.controller.signal(Signal::SIGSTOP);
    until("the second leads", &second, async || second.leads().await).await;
    goes_on(&place, &second).await;
    let mut first = std::mem::replace(&mut place.controller, second);
    first.wakes_without_its_lease().await;
    assert!(place.controller.leads().await, "{}", place.controller.log());
    end_whole(place).await;
}

#[tokio::test]
async fn a_leader_that_is_killed_is_followed_by_one_that_starts_nothing_twice() {
    let mut place = led("killed-leader").await;
    let second = candidate(&place.namespace, "second").await;
    in_flight(&place).await;
    place.controller.signal(Signal::SIGKILL);
    place.controller.end().await;
    until("the second leads", &second, async || second.leads().await).await;
    let told = second.log().matches("standing by").count();
    assert_eq!(told, 1, "{}", second.log());
    goes_on(&place, &second).await;
    place.controller = second;
    end_whole(place).await;
}
