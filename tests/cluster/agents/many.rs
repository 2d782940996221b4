//! Many sessions over few slots: every slot is filled as long as work waits, whatever agents end with, and nothing is started twice.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::slots::{Slots, Watched};
use super::{DATA, agents, audit, directory, ended_well, metadata};
use crate::runtime::jobs::place::Place;
use crate::runtime::pools::condition;

const SLOTS: usize = 8;
/// What a group's agents end with.
const CODES: [i32; 5] = [0, 1, 0, 3, 42];
const PER_GROUP: usize = 4;
/// Two hundred sessions, where a session costs no Pod.
const GROUPS: usize = 50;
/// A Pod takes about a second of a core here, and these tests run beside others: twelve Pods to a slot show what twenty-five do.
/// `ROLLOUT_CLUSTER_SESSIONS` chooses another number of sessions.
const GROUPS_OF_PODS: usize = 24;
/// All sessions of one job, each in a Pod of its own, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(10);

fn spec(agentic: &Value, groups: usize, at_once: usize) -> Value {
    let rows: Vec<_> = (0..groups)
        .map(|row| {
            let code = CODES[row % CODES.len()];
            json!({"prompt": [{"role": "user", "content": format!("Problem {row}: end with {code}")}]})
        })
        .collect();
    json!({
        "dataset": {"inline": rows},
        "rollout": {"batchSize": groups, "samplesPerPrompt": PER_GROUP, "concurrency": {"sessions": at_once}},
        "generate": {"agentic": agentic},
    })
}

/// Runs a job to its end, and holds what every way of running it has in common.
async fn run(place: &Place, job: &str, spec: &Value) -> (Vec<audit::Write>, Vec<Value>) {
    let groups = usize::try_from(spec["rollout"]["batchSize"].as_u64().unwrap()).unwrap();
    let count = groups * PER_GROUP;
    let marks = format!("marks-{job}");
    directory(place, &marks).await;
    let begin = tokio::time::Instant::now();
    place.job(job, spec).await;
    place
        .comes_true(&format!("{job} is complete"), LIMIT, async || {
            let complete = condition(&place.jobs, job, "Complete").await;
            let failed = condition(&place.jobs, job, "Failed").await;
            assert!(
                !failed.starts_with("True"),
                "{failed}: {}",
                place.said(job, "Failed").await
            );
            complete == "True/TargetReached"
        })
        .await;
    let seconds = begin.elapsed().as_secs_f64();

    let status = place.status(job).await;
    let sessions = &status["progress"]["sessions"];
    let good = (0..groups)
        .filter(|row| CODES[row % CODES.len()] == 0)
        .count()
        * PER_GROUP;
    assert_eq!(
        ended_well(sessions),
        i64::try_from(good).unwrap(),
        "{sessions}"
    );
    assert_eq!(sessions["agentFailed"], count - good, "{sessions}");
    assert_eq!(sessions["infraFailed"], 0, "{sessions}");
    assert_eq!(status["progress"]["groups"]["kept"], groups, "{status}");
    assert_eq!(status["attempt"], 1, "{status}");

    // Agents leave a mark as they begin, and tell whether it was there already.
    let metadata = metadata(place, job).await;
    assert_eq!(metadata.len(), count);
    assert!(
        metadata.iter().all(|one| one["first"] != false),
        "a session was started twice"
    );
    let script = format!("/bin/busybox ls {DATA}/{marks} | /bin/busybox wc -l");
    let command = ["/bin/busybox", "sh", "-c", &script];
    let counts = format!("count-{job}");
    let marked = place
        .run(&counts, "localhost/tiny:1", &command, 65532)
        .await;
    assert_eq!(marked.trim(), count.to_string(), "sessions that were begun");

    place.nothing_left(job).await;
    assert_eq!(place.of::<Pod>(job).await, [format!("{job}-driver-1")]);
    place.verify_in(&format!("verify-{job}"), job).await;
    let writes = audit::writes(&place.namespace, job);
    println!(
        "{job}: {count} sessions in {seconds:.0} s, {} writes and those of progress: {:?}",
        audit::without_progress(&writes),
        audit::by_kind(&writes)
    );
    (writes, metadata)
}

#[tokio::test]
async fn sessions_in_pods_of_their_own_fill_eight_slots() {
    let place = Place::new("many").await;
    let watched = Watched::new(&place, "own");
    let given = std::env::var("ROLLOUT_CLUSTER_SESSIONS").ok();
    let groups = given.map_or(GROUPS_OF_PODS, |text| {
        text.parse::<usize>().unwrap() / PER_GROUP
    });
    let sessions = groups * PER_GROUP;
    let spec = spec(&agents(&["exits"], &json!([]), "marks-own"), groups, SLOTS);
    let (writes, _) = run(&place, "own", &spec).await;
    let made = audit::agents_made(&writes);
    let names: BTreeSet<_> = made.iter().collect();
    assert_eq!(
        names.len(),
        made.len(),
        "a slot and generation was made twice: {made:?}"
    );
    assert_eq!(made.len(), sessions, "one to a session");

    let slots = Slots::of(&watched.seen(), sessions);
    println!("own: {}", slots.summary());
    assert_eq!(slots.most, SLOTS, "{}", slots.summary());
    // A slot that rests after its agent failed would be passed by all others.
    assert!(slots.overtaken < SLOTS, "{}", slots.summary());
    place.end().await;
}

#[tokio::test]
async fn two_hundred_sessions_in_eight_pods_that_are_used_again() {
    let place = Place::new("reused").await;
    let mut agentic = agents(&["exits"], &json!([]), "marks-reused");
    agentic["sessionsPerPod"] = json!(0);
    let (writes, _) = run(&place, "reused", &spec(&agentic, GROUPS, SLOTS)).await;
    let made = audit::agents_made(&writes);
    assert_eq!(made.len(), SLOTS, "{made:?}");
    assert!(
        audit::without_progress(&writes) < 40,
        "{:?}",
        audit::by_kind(&writes)
    );
    place.end().await;
}

/// Waits until as many sessions run as may, then ends as the prompt says: were they never so many, each would fail.
const FUNCTION: &str = r#"
import asyncio, os
from miles.utils.http_utils import post

running, full = 0, None

async def run(base_url, prompt):
    global running, full
    full = full or asyncio.Event()
    running += 1
    try:
        mark = os.path.join(os.environ["STARTS"], base_url.rsplit("/", 1)[-1])
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        if running == 32:
            full.set()
        await asyncio.wait_for(full.wait(), 60)
        await post(f"{base_url}/v1/chat/completions", {"model": "any", "messages": prompt})
        code = int(prompt[-1]["content"].split()[-1])
        if code:
            raise RuntimeError(f"ended with {code}")
    finally:
        running -= 1
"#;

#[tokio::test]
async fn two_hundred_sessions_in_one_process_thirty_two_at_once() {
    let place = Place::new("shared").await;
    let code = json!({"metadata": {"name": "code"}, "data": {"agent.py": FUNCTION}});
    let maps: Api<ConfigMap> = place.all();
    let code = serde_json::from_value(code).unwrap();
    maps.create(&PostParams::default(), &code).await.unwrap();
    let mut agentic = agents(&[], &json!([]), "marks-shared");
    let mut template = agentic["agent"]["container"]["template"].take();
    let agent = template["spec"]["containers"][0].as_object_mut().unwrap();
    agent.retain(|field, _| field != "command" && field != "image");
    agentic["agent"] = json!({"function": {
        "path": "agent.run", "image": "localhost/python:1", "code": {"configMap": {"name": "code"}}, "template": template,
    }});
    agentic["sessionsPerPod"] = json!(0);
    agentic["concurrentSessionsPerPod"] = json!(32);
    let (writes, _) = run(&place, "shared", &spec(&agentic, GROUPS, 32)).await;
    let made = audit::agents_made(&writes);
    assert_eq!(made.len(), 1, "{made:?}");
    assert!(
        audit::without_progress(&writes) < 30,
        "{:?}",
        audit::by_kind(&writes)
    );
    place.end().await;
}
