//! Pods that are gone: their sessions end, and nothing is given to them any more.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Answer, Bed, JOB, eventually, slow_engine_config, user};

fn claim(number: u8, wait: u32) -> Value {
    json!({"claim_id": format!("{number:032x}"), "wait_seconds": wait})
}

async fn claimed(bed: &Bed, slot: &str, generation: u64, number: u8) -> String {
    let id = bed.session(json!({"job": JOB, "assign": true})).await;
    let launcher = bed.launcher(slot, generation);
    let answer = launcher.post("/agent/claim", claim(number, 5)).await.ok();
    assert_eq!(answer["session_id"], id);
    id
}

async fn ended(bed: &Bed, slot: Value, generation: u64) -> Value {
    let body = json!({"job": JOB, "slot": slot, "generation": generation, "reason": "the pod was evicted"});
    bed.control().post("/pod-ended", body).await.ok()
}

#[tokio::test]
async fn why_a_pod_is_gone_is_a_mark_of_its_sessions() {
    let bed = Bed::start().await;
    for (number, cause, marks) in [
        (1_u8, "out_of_memory", json!({"out_of_memory": true})),
        (2, "sandbox_failed", json!({"sandbox_failed": true})),
        (3, "a word of a later version", json!({})),
    ] {
        let slot = number.to_string();
        let id = claimed(&bed, &slot, 1, number).await;
        let body =
            json!({"job": JOB, "slot": slot, "generation": 1, "reason": "as told", "cause": cause});
        let answer = bed.control().post("/pod-ended", body).await.ok();
        assert_eq!(answer, json!({"sessions": 1}));
        let feed = format!("/outcomes?job={JOB}");
        let feed = bed.control().get(&feed).await.ok();
        let outcomes = feed["outcomes"].as_array().unwrap();
        let outcome = outcomes.iter().find(|one| one["session_id"] == id).unwrap();
        assert_eq!(outcome["outcome"], "infra_failed");
        assert_eq!(outcome["metadata"], marks, "{cause}");
    }
}

async fn waiting(bed: &Bed, claims: u64) {
    let demand = format!("/demand?job={JOB}");
    let wait = async {
        while bed.control().get(&demand).await.json()["idle_claims"] != claims {
            tokio::task::yield_now().await;
        }
    };
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, wait).await.unwrap();
}

fn assert_stale(answer: &Answer) {
    assert_eq!(answer.status, 409, "{:?}", answer.body);
    assert_eq!(answer.json()["error"]["code"], "stale_generation");
    assert_eq!(answer.headers["x-should-retry"], "false");
}

#[tokio::test]
async fn the_sessions_of_a_pod_that_is_gone_end_as_infrastructure_failures() {
    let bed = Bed::with(vec![slow_engine_config()], |_| {}).await;
    let simulator = &bed.engines[0].simulator;
    let first = claimed(&bed, "3", 7, 1).await;
    let second = claimed(&bed, "3", 7, 2).await;
    let neighbour = claimed(&bed, "4", 7, 3).await;
    let endless = json!({"messages": [user("hi")], "max_tokens": 20_000, "ignore_eos": true});
    let end = async {
        eventually("the turn runs", || simulator.state().running == 1).await;
        ended(&bed, json!(3), 7).await
    };
    let (turn, answer) = tokio::join!(bed.chat(&first, endless), end);
    assert_eq!(answer, json!({"sessions": 2}));
    assert_eq!(turn.status, 410);
    eventually("nothing runs", || simulator.state().running == 0).await;
    let feed = bed
        .control()
        .get(&format!("/outcomes?job={JOB}"))
        .await
        .ok();
    let outcomes = feed["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 2);
    for outcome in outcomes {
        assert!([&first, &second].contains(&&outcome["session_id"].as_str().unwrap().to_owned()));
        assert_eq!(outcome["outcome"], "infra_failed");
        assert_eq!(outcome["error"], "the pod was evicted");
        assert_eq!(outcome["engine_fault"], Value::Null);
    }
    let beat = format!("/agent/sessions/{neighbour}/heartbeat");
    let alive = bed.launcher("4", 7).post(&beat, json!({})).await.ok();
    assert_eq!(alive["state"], "running");
    // Its launcher was only cut off: it learns that the session has ended, and its result does not count.
    let cut_off = bed.launcher("3", 7);
    let beat = format!("/agent/sessions/{first}/heartbeat");
    assert_eq!(cut_off.post(&beat, json!({})).await.ok()["state"], "ended");
    let result = format!("/agent/sessions/{first}/result");
    let late = cut_off.post(&result, json!({"outcome": "completed"})).await;
    assert_eq!(late.ok()["accepted"], false);
    assert_eq!(ended(&bed, json!("3"), 7).await, json!({"sessions": 0}));
}

#[tokio::test]
async fn a_pod_that_is_gone_and_those_before_it_claim_nothing() {
    let bed = Bed::start().await;
    claimed(&bed, "3", 7, 1).await;
    ended(&bed, json!(3), 7).await;
    let id = bed.session(json!({"job": JOB, "assign": true})).await;
    // Also not what it had: the same claim again.
    for (generation, number) in [(7, 1), (7, 2), (6, 3)] {
        let launcher = bed.launcher("3", generation);
        assert_stale(&launcher.post("/agent/claim", claim(number, 0)).await);
    }
    let next = bed.launcher("3", 8).post("/agent/claim", claim(4, 0)).await;
    assert_eq!(next.ok()["session_id"], id);
    assert_eq!(ended(&bed, json!(3), 7).await["sessions"], 0);
    let beat = format!("/agent/sessions/{id}/heartbeat");
    let beat = bed.launcher("3", 8).post(&beat, json!({})).await.ok();
    assert_eq!(beat["state"], "running");
}

#[tokio::test]
async fn the_sessions_of_earlier_pods_of_the_slot_end_too() {
    let bed = Bed::start().await;
    claimed(&bed, "0", 1, 1).await;
    claimed(&bed, "0", 2, 2).await;
    assert_eq!(ended(&bed, json!(0), 4).await["sessions"], 2);
}

#[tokio::test]
async fn a_claim_that_waits_is_refused_at_once() {
    let bed = Bed::start().await;
    let launcher = bed.launcher("3", 7);
    let end = async {
        waiting(&bed, 1).await;
        ended(&bed, json!(3), 7).await
    };
    let both = async { tokio::join!(launcher.post("/agent/claim", claim(1, 30)), end) };
    let limit = Duration::from_secs(20);
    let (answer, report) = tokio::time::timeout(limit, both).await.unwrap();
    assert_stale(&answer);
    assert_eq!(report["sessions"], 0);
    assert_eq!(
        bed.control()
            .get(&format!("/demand?job={JOB}"))
            .await
            .json()["idle_claims"],
        0
    );
}

#[tokio::test]
async fn a_session_does_not_get_lost_with_a_claim_that_was_overtaken() {
    let bed = Bed::start().await;
    let (old, new) = (bed.launcher("3", 1), bed.launcher("3", 2));
    let create = async {
        waiting(&bed, 2).await;
        bed.session(json!({"job": JOB, "assign": true})).await
    };
    let newer = async {
        waiting(&bed, 1).await;
        new.post("/agent/claim", claim(2, 30)).await
    };
    let all = async { tokio::join!(old.post("/agent/claim", claim(1, 30)), newer, create) };
    let limit = Duration::from_secs(20);
    let (old, new, id) = tokio::time::timeout(limit, all).await.unwrap();
    assert_stale(&old);
    assert_eq!(new.ok()["session_id"], id);
}

#[tokio::test]
async fn a_report_that_cannot_be_understood_ends_nothing() {
    let bed = Bed::start().await;
    let id = claimed(&bed, "3", 7, 1).await;
    for body in [
        json!({"job": JOB, "slot": 3}),
        json!({"job": JOB, "generation": 7}),
        json!({"slot": 3, "generation": 7}),
        json!({"job": JOB, "slot": 3, "generation": -1}),
    ] {
        assert_eq!(bed.control().post("/pod-ended", body).await.status, 400);
    }
    let other = json!({"job": "other", "slot": 3, "generation": 7});
    let other = bed.control().post("/pod-ended", other).await.ok();
    assert_eq!(other["sessions"], 0);
    let beat = format!("/agent/sessions/{id}/heartbeat");
    let beat = bed.launcher("3", 7).post(&beat, json!({})).await.ok();
    assert_eq!(beat["state"], "running");
}

/// More pods than are needed: who has work keeps it, who waits is told at once.
#[tokio::test]
async fn a_pod_ends_only_if_it_is_idle_where_that_is_asked() {
    let bed = Bed::start().await;
    let busy = claimed(&bed, "0", 1, 1).await;
    let may_go = |slot: u64| json!({"job": JOB, "slot": slot, "generation": 1, "only_idle": true});
    let ask = async |slot| bed.control().post("/pod-ended", may_go(slot)).await.ok();
    assert_eq!(ask(0).await, json!({"sessions": 0, "busy": true}));
    let beat = format!("/agent/sessions/{busy}/heartbeat");
    let alive = bed.launcher("0", 1).post(&beat, json!({})).await.ok();
    assert_eq!(alive["state"], "running");
    let idle = bed.launcher("1", 1);
    let claims = idle.post("/agent/claim", claim(2, 20));
    let end = async {
        waiting(&bed, 1).await;
        ask(1).await
    };
    let (claims, answer) = tokio::join!(claims, end);
    assert_eq!(answer, json!({"sessions": 0, "busy": false}));
    assert_stale(&claims);
    assert_eq!(ask(1).await["busy"], false);
    // The work that comes is another pod's.
    let id = bed.session(json!({"job": JOB, "assign": true})).await;
    let next = bed.launcher("1", 2).post("/agent/claim", claim(3, 0)).await;
    assert_eq!(next.ok()["session_id"], id);
}
