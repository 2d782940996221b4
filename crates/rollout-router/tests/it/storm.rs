//! Everything at once: engines that fail in every way, clients that go away, sessions that are deleted, fenced and lost with their
//! pods while they generate. Afterwards nothing is counted that is not there, and every turn is recorded or was refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind};
use tokio::task::JoinSet;

use crate::support::{Answer, Bed, JOB, engine_config, eventually, in_time, user};

const CHAT: &str = "/v1/chat/completions";
const OTHER: &str = "other";
const SESSIONS: u64 = 100;
const SLOTS: u64 = 8;

/// A small generator, so that a failure can be had again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

fn faults(path: &str) -> Vec<Fault> {
    let some = |kind, percent| Fault {
        percent,
        ..Fault::new(path, kind)
    };
    vec![
        some(FaultKind::Status500, 5),
        some(FaultKind::Status503, 5),
        some(FaultKind::Refuse, 5),
        some(FaultKind::CutBody, 5),
        some(FaultKind::WrongCounts, 5),
        some(FaultKind::MissingIds, 5),
        some(FaultKind::Stall, 10).seconds(20.0),
        some(FaultKind::SlowFirstByte, 10).seconds(20.0),
        // For ever: only an abort, a limit or the engine's end helps.
        some(FaultKind::Stall, 2),
    ]
}

async fn storm_bed() -> Bed {
    let mut config = engine_config();
    config.faults = faults(CHAT);
    config.faults.extend(faults("/generate"));
    let deaf = Fault {
        percent: 20,
        ..Fault::new("/abort_request", FaultKind::Stall)
    };
    config.faults.push(deaf);
    Bed::with(vec![config; 4], |config| {
        config.times.probe = Duration::from_millis(20);
        config.times.control_call = Duration::from_millis(200);
        config.times.abort_repeat = Duration::from_millis(20);
        config.times.orphan = Duration::from_millis(500);
        config.times.first_byte = Some(Duration::from_millis(400));
    })
    .await
}

/// How the turns of a session went for its client.
#[derive(Default)]
struct Seen {
    answered: usize,
    unknown: usize,
}

/// A few turns, some of whose clients do not wait for the answer.
async fn turns(bed: &Bed, id: &str, dice: &mut Dice) -> Seen {
    let mut seen = Seen::default();
    for _ in 0..=dice.below(5) {
        let body =
            json!({"messages": [user("hi")], "max_tokens": 1 + dice.below(60), "ignore_eos": true});
        let turn = bed.chat(id, body);
        if dice.below(4) > 0 {
            let answer = in_time(turn).await;
            assert_told(&answer);
            seen.answered += usize::from(answer.status == 200);
            continue;
        }
        let patience = Duration::from_millis(dice.below(30));
        match tokio::time::timeout(patience, turn).await {
            Ok(answer) => seen.answered += usize::from(answer.status == 200),
            Err(_) => seen.unknown += 1,
        }
    }
    seen
}

/// A failure says whose it is and what to do about it.
fn assert_told(answer: &Answer) {
    let retry = answer.headers.get("x-should-retry");
    match answer.status.as_u16() {
        200 | 500 | 502 | 503 | 504 => assert!(retry.is_none_or(|value| value == "true")),
        404 | 410 => assert_eq!(retry.unwrap(), "false"),
        other => panic!("{other}: {:?}", answer.body),
    }
}

async fn create(bed: &Bed, body: Value) -> String {
    loop {
        let created = bed.control().post("/sessions", body.clone()).await;
        if created.status == 410 {
            tokio::task::yield_now().await;
            continue;
        }
        return created.ok()["session_id"].as_str().unwrap().to_owned();
    }
}

/// A session of whoever has its id.
async fn open_session(bed: Arc<Bed>, number: u64) {
    let mut dice = Dice(number);
    let id = create(&bed, json!({"job": OTHER})).await;
    let path = format!("/sessions/{id}");
    if dice.below(3) == 0 {
        let delete = async {
            tokio::time::sleep(Duration::from_millis(dice.below(20))).await;
            bed.control().delete(&path).await
        };
        let mut other = Dice(number + 1);
        let (_, deleted) = tokio::join!(turns(&bed, &id, &mut other), delete);
        assert_eq!(deleted.status, 204);
        return;
    }
    let seen = turns(&bed, &id, &mut dice).await;
    check_records(&bed, &id, &seen).await;
    assert_eq!(bed.control().delete(&path).await.status, 204);
}

/// What was answered is recorded; what was refused is not.
async fn check_records(bed: &Bed, id: &str, seen: &Seen) {
    let path = format!("/sessions/{id}");
    let story = bed.control().get(&path).await.ok();
    let records = story["records"].as_array().unwrap().len();
    let most = seen.answered + seen.unknown;
    assert!(
        (seen.answered..=most).contains(&records),
        "{records} records, {} answered, {} unknown: {story}",
        seen.answered,
        seen.unknown
    );
}

/// A slot whose pods claim sessions and end in every way.
async fn slot(bed: Arc<Bed>, number: u64, left: Arc<AtomicUsize>) {
    let mut dice = Dice(1_000 + number);
    let mut generation = 1;
    let mut claims: u64 = 0;
    while left.load(Ordering::Relaxed) > 0 {
        claims += 1;
        let launcher = bed.launcher(&number.to_string(), generation);
        let claim =
            json!({"claim_id": format!("{:032x}", number << 32 | claims), "wait_seconds": 0.05});
        let answer = in_time(launcher.post("/agent/claim", claim)).await;
        if answer.status != 200 {
            assert!(matches!(answer.status.as_u16(), 204 | 410), "{answer:?}");
            tokio::task::yield_now().await;
            continue;
        }
        let id = answer.ok()["session_id"].as_str().unwrap().to_owned();
        left.fetch_sub(1, Ordering::Relaxed);
        let end = dice.below(3);
        let pod = json!({"job": JOB, "slot": number, "generation": generation, "reason": "lost"});
        let seen = if end == 0 {
            let patience = Duration::from_millis(dice.below(20));
            let lost = async {
                tokio::time::sleep(patience).await;
                bed.control().post("/pod-ended", pod).await.ok()
            };
            generation += 1;
            let (seen, lost) = tokio::join!(turns(&bed, &id, &mut dice), lost);
            assert_eq!(lost["sessions"], 1);
            seen
        } else {
            let seen = turns(&bed, &id, &mut dice).await;
            let result = format!("/agent/sessions/{id}/result");
            let body = json!({"outcome": "completed"});
            launcher.post(&result, body).await.ok();
            seen
        };
        check_records(&bed, &id, &seen).await;
        let path = format!("/sessions/{id}");
        assert_eq!(bed.control().delete(&path).await.status, 204);
    }
}

async fn pass(bed: Arc<Bed>, number: u64) {
    let mut dice = Dice(2_000 + number);
    let client = bed.control().header("x-rollout-job", OTHER);
    let n = 1 + dice.below(2);
    let body = json!({"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 20, "ignore_eos": true, "n": n}});
    let request = client.try_send("POST", "/generate", body.to_string());
    let patience = Duration::from_millis(1 + dice.below(60));
    // An answer may break off after its head.
    let _ = tokio::time::timeout(patience, request).await;
}

async fn fences(bed: Arc<Bed>) {
    let mut dice = Dice(3_000);
    for _ in 0..20 {
        let job = if dice.below(2) == 0 { JOB } else { OTHER };
        let body = json!({"job": job, "deadline_seconds": 0.1});
        let report = in_time(bed.control().post("/fence", body)).await.ok();
        let sum = |key: &str| -> u64 {
            let engines = report["engines"].as_array().unwrap();
            engines
                .iter()
                .map(|engine| engine[key].as_u64().unwrap())
                .sum()
        };
        let told = sum("aborted") + sum("left") + sum("unproven");
        assert!(told <= report["requests"].as_u64().unwrap(), "{report}");
        let open = json!({"job": job}).to_string();
        bed.control().send("DELETE", "/fence", open).await.ok();
        tokio::time::sleep(Duration::from_millis(dice.below(20))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_after_a_storm() {
    let bed = Arc::new(storm_bed().await);
    let left = Arc::new(AtomicUsize::new(usize::try_from(SESSIONS).unwrap()));
    let mut storm = JoinSet::new();
    for number in 0..SESSIONS {
        storm.spawn(open_session(Arc::clone(&bed), number));
        storm.spawn(pass(Arc::clone(&bed), number));
        let bed = Arc::clone(&bed);
        storm.spawn(async move { drop(create(&bed, json!({"job": JOB, "assign": true})).await) });
    }
    for number in 0..SLOTS {
        storm.spawn(slot(Arc::clone(&bed), number, Arc::clone(&left)));
    }
    storm.spawn(fences(Arc::clone(&bed)));
    let dies = Arc::clone(&bed);
    storm.spawn(async move {
        let in_the_middle =
            || left.load(Ordering::Relaxed) < usize::try_from(SESSIONS / 2).unwrap();
        eventually("half of the sessions are claimed", in_the_middle).await;
        dies.engines[3].simulator.kill();
    });
    let all = async {
        while let Some(ended) = storm.join_next().await {
            ended.unwrap();
        }
    };
    let limit = Duration::from_mins(3);
    tokio::time::timeout(limit, all).await.unwrap();

    for engine in &bed.engines {
        engine.simulator.clear_faults();
    }
    let control = bed.control();
    let quiet = async {
        loop {
            let status = control.get("/status").await.ok();
            let engines = status["engines"].as_array().unwrap();
            let idle = engines
                .iter()
                .all(|engine| engine["in_flight"] == 0 && engine["sessions"] == 0);
            if status["requests_in_flight"] == 0 && idle {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let status = in_time(quiet).await;
    assert_eq!(status["sessions"], json!({}), "{status}");
    assert_eq!(status["record_bytes"], 0);
    for job in [JOB, OTHER] {
        let demand = control.get(&format!("/demand?job={job}")).await.ok();
        let nothing = json!({"waiting": 0, "assigned": 0, "idle_claims": 0, "closed": false});
        assert_eq!(demand, nothing);
        let feed = control.get(&format!("/outcomes?job={job}")).await.ok();
        assert_eq!(feed["outcomes"], json!([]));
    }
    // And it goes on as if nothing had been.
    let bed = &bed;
    let calm = join_all((0..20).map(|_| async move {
        let id = create(bed, json!({"job": OTHER})).await;
        let body = json!({"messages": [user("hi")], "max_tokens": 2});
        bed.chat(&id, body).await.ok();
    }));
    in_time(calm).await;
}
