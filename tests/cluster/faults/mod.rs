//! `kill -9` of every kind of process at random moments, with several jobs at once.
//!
//! Inputs: `ROLLOUT_CLUSTER_KILLS` (default 30) and `ROLLOUT_CLUSTER_SEED`, which chooses victims and moments. Guarantees that are held: every
//! job ends with its samples, ledgers sum up, nothing is left: no Pod, no request at an engine, no process. Runs alone: it kills the API server.
//! At its end a table of what was done is in `out/soak.md`.

mod node;
mod processes;
mod table;

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rollout_operator::api::meta::labels;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::processes::{Kind, Process};
use self::table::{Pace, Table};
use crate::agents::{agents, directory};
use crate::runtime::controller::Controller;
use crate::runtime::jobs::place::{Place, engines};
use crate::runtime::pools::{condition, create, pool};

/// The pool of all jobs.
const POOL: &str = "slow";
const KILLS: usize = 30;
const SEED: u64 = 1;
/// Time between two kills, in milliseconds.
const PAUSES: std::ops::Range<u64> = 200..2_500;
/// How long a kind that has no process now, such as an agent between two sessions, may take to have one.
const ABSENCE: Duration = Duration::from_secs(20);
/// Engines: the kubelet lets one that died often wait for minutes, and jobs need some that run.
const ENGINES: u8 = 4;
/// How long jobs may take that nobody disturbs any more: a container that died often waits for five minutes before it starts again.
const LIMIT: Duration = Duration::from_mins(8);
/// How long the control plane may take to come back.
const CONTROL_PLANE: Duration = Duration::from_mins(2);

fn number(variable: &str, default: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(default, |text| text.parse().unwrap())
}

/// Jobs of every way to run, again and again, so that there are always some to disturb.
struct Load {
    running: Vec<(String, usize)>,
    begun: Vec<String>,
}

impl Load {
    /// The ways: without agents, Pods of one session each, Pods that are used again.
    const WAYS: [&str; 3] = ["single", "own", "reused"];

    async fn begin(&mut self, place: &Place, way: usize) {
        let name = format!("{}-{}", Self::WAYS[way], self.begun.len());
        place.job(&name, &spec(way)).await;
        self.begun.push(name.clone());
        self.running.push((name, way));
    }

    /// Replaces jobs that have ended.
    async fn renew(&mut self, place: &Place) {
        for (name, way) in std::mem::take(&mut self.running) {
            if has_ended(place, &name).await {
                self.begin(place, way).await;
            } else {
                self.running.push((name, way));
            }
        }
    }
}

async fn has_ended(place: &Place, job: &str) -> bool {
    let failed = condition(&place.jobs, job, "Failed").await;
    assert!(
        !failed.starts_with("True"),
        "{job}: {failed}: {}\n{}",
        place.said(job, "Failed").await,
        place.status(job).await
    );
    condition(&place.jobs, job, "Complete").await == "True/TargetReached"
}

fn spec(way: usize) -> Value {
    let generate = if way == 0 {
        json!({"singleTurn": {}})
    } else {
        let mut agentic = agents(&["turns", "3"], &json!([]), "marks");
        agentic["sessionsPerPod"] = json!(2 - way);
        json!({"agentic": agentic})
    };
    let rows: Vec<_> = (0..12)
        .map(|row| json!({"prompt": [{"role": "user", "content": format!("{row}?")}]}))
        .collect();
    json!({
        "poolRef": {"name": POOL},
        "dataset": {"inline": rows},
        "rollout": {
            "batchSize": 12, "samplesPerPrompt": 2, "concurrency": {"sessions": 3, "requestsPerEngine": 2},
            "errorBudget": {"infraFailures": 10_000, "consecutiveGroupFailures": 1_000, "retriesPerGroup": 100, "retriesPerSample": 100},
        },
        "sampling": {"maxNewTokens": 200},
        "backoffLimit": 1_000,
        "generate": generate,
    })
}

async fn slow_pool(place: &Place) {
    let mut slow = engines();
    slow["replicas"] = json!(ENGINES);
    slow["engine"]["simulator"] = json!({"timeScale": 1});
    create(&place.client, &pool(&place.namespace, POOL, &slow)).await;
    place.becomes_ready(POOL).await;
}

/// Kills one; waits until what the test itself needs is back. None of that kind: nothing.
async fn kill(place: &mut Place, kind: Kind, chance: &mut StdRng) -> Option<String> {
    if kind == Kind::Controller {
        place.controller.signal(Signal::SIGKILL);
        place.controller.end().await;
        place.controller = Controller::ready(&place.namespace, &[]).await;
        return Some("controller".to_owned());
    }
    let pods = place
        .all::<Pod>()
        .list(&ListParams::default())
        .await
        .unwrap();
    // The place's own pool has no work here.
    let busy: Vec<_> = pods
        .into_iter()
        .filter(|pod| {
            pod.labels()
                .get(labels::POOL)
                .is_none_or(|pool| pool == POOL)
        })
        .collect();
    let mut victims = processes::of(kind, &busy);
    victims.sort_by(|left, right| left.pod.cmp(&right.pod));
    if victims.is_empty() {
        return None;
    }
    let Process { id, pod } = victims.swap_remove(chance.random_range(0..victims.len()));
    // It may have ended since.
    processes::kill(id).ok()?;
    if kind == Kind::ApiServer {
        answers_again(place).await;
    }
    Some(pod)
}

async fn answers_again(place: &Place) {
    place
        .comes_true("the API server answers", CONTROL_PLANE, async || {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            place.client.request_text(request).await.is_ok()
        })
        .await;
}

/// What engines have in flight.
async fn requests(place: &Place) -> Vec<String> {
    let selector = format!("{}=engine", labels::COMPONENT);
    let params = ListParams::default().labels(&selector);
    let pods = place.all::<Pod>().list(&params).await.unwrap();
    let mut found = Vec::new();
    for pod in pods {
        let name = pod.name_any();
        let Some(address) = pod.status.and_then(|status| status.pod_ip) else {
            found.push(format!("{name} has no address"));
            continue;
        };
        let answer = reqwest::get(format!("http://{address}:30000/simulator/state")).await;
        match answer {
            Ok(answer) => {
                let state: Value = answer.json().await.unwrap();
                if state["in_flight"]
                    .as_array()
                    .is_none_or(|all| !all.is_empty())
                {
                    found.push(format!("{name}: {state}"));
                }
            }
            Err(error) => found.push(format!("{name}: {error}")),
        }
    }
    found
}

#[tokio::test]
async fn jobs_end_whole_whatever_is_killed() {
    let kills = usize::try_from(number("ROLLOUT_CLUSTER_KILLS", KILLS as u64)).unwrap();
    let seed = number("ROLLOUT_CLUSTER_SEED", SEED);
    let mut chance = StdRng::seed_from_u64(seed);
    let mut place = Place::new("kills").await;
    directory(&place, "marks").await;
    slow_pool(&place).await;
    let mut load = Load {
        running: Vec::new(),
        begun: Vec::new(),
    };
    for way in 0..Load::WAYS.len() {
        load.begin(&place, way).await;
    }
    let watch = Pace::watch(place.jobs.clone());
    let mut table = Table::new(seed);
    // Every kind has its turn, in an order by chance.
    let mut kinds: Vec<Kind> = Vec::new();
    let mut done = 0;
    let begin = Instant::now();
    let mut last_kill = begin;
    while done < kills {
        if kinds.is_empty() {
            kinds = Kind::ALL.to_vec();
            kinds.shuffle(&mut chance);
        }
        tokio::time::sleep(Duration::from_millis(chance.random_range(PAUSES))).await;
        load.renew(&place).await;
        // The last kind that has a process now; the others keep their turn.
        let mut killed = None;
        for position in (0..kinds.len()).rev() {
            if let Some(victim) = kill(&mut place, kinds[position], &mut chance).await {
                killed = Some((kinds.remove(position), victim));
                break;
            }
        }
        let Some((kind, victim)) = killed else {
            if last_kill.elapsed() > ABSENCE {
                kinds.clear();
            }
            continue;
        };
        done += 1;
        last_kill = Instant::now();
        println!("seed {seed}, kill {done}: {kind:?} ({victim})");
        *table.kills.entry(kind).or_default() += 1;
    }
    table.killing = last_kill - begin;
    println!(
        "seed {seed}: {} jobs, kills {:?}",
        load.begun.len(),
        table.kills
    );
    for job in &load.begun {
        place
            .comes_true(&format!("{job} is complete"), LIMIT, async || {
                has_ended(&place, job).await
            })
            .await;
    }
    table.settling = last_kill.elapsed();
    table.pause = watch.end();
    for job in &load.begun {
        table.add(&place.status(job).await);
        let groups = &place.status(job).await["progress"]["groups"];
        assert_eq!(groups["kept"], 12, "{job}: {groups}");
        assert_eq!(groups["inFlight"], 0, "{job}: {groups}");
        place.nothing_left(job).await;
    }
    place
        .comes_true("engines have nothing in flight", LIMIT, async || {
            requests(&place).await.is_empty()
        })
        .await;
    for job in &load.begun {
        // The ledger's sums are among what is verified.
        place.verify_in(&format!("verify-{job}"), job).await;
        place.only_drivers_left(job).await;
    }
    let pods = place
        .all::<Pod>()
        .list(&ListParams::default())
        .await
        .unwrap();
    for kind in [
        Kind::Driver,
        Kind::Router,
        Kind::Launcher,
        Kind::Shim,
        Kind::Agent,
    ] {
        let left: Vec<_> = processes::of(kind, &pods.items);
        assert!(left.is_empty(), "{kind:?}: {left:?}");
    }
    let text = table.text();
    println!("{text}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("out");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("soak.md"), text).unwrap();
    place.end().await;
}
