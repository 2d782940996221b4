//! Launchers: claims, heartbeats, events, results; and the feeds that the driver reads.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Bed, JOB, engine_config};

fn claim_id(number: u8) -> String {
    format!("{number:032x}")
}

fn claim(number: u8, wait: u32) -> Value {
    json!({"claim_id": claim_id(number), "wait_seconds": wait})
}

async fn queued(bed: &Bed) -> String {
    bed.session(json!({"job": JOB, "assign": true, "prompt": "p"}))
        .await
}

async fn outcomes(bed: &Bed, after: u64) -> Value {
    let path = format!("/outcomes?job={JOB}&after={after}&wait_seconds=0");
    bed.control().get(&path).await.ok()
}

#[tokio::test]
async fn sessions_are_claimed_in_their_order_once_each() {
    let bed = Bed::start().await;
    let first = queued(&bed).await;
    let second = queued(&bed).await;
    let demand = bed.control().get(&format!("/demand?job={JOB}")).await.ok();
    assert_eq!(
        demand,
        json!({"waiting": 2, "assigned": 0, "idle_claims": 0, "closed": false})
    );
    let launcher = bed.launcher("0", 1);
    assert_eq!(
        launcher.post("/agent/claim", claim(1, 0)).await.ok()["session_id"],
        first
    );
    assert_eq!(
        bed.launcher("1", 1)
            .post("/agent/claim", claim(2, 0))
            .await
            .ok()["session_id"],
        second
    );
    assert_eq!(
        launcher.post("/agent/claim", claim(1, 0)).await.ok()["session_id"],
        first
    );
    assert_eq!(launcher.post("/agent/claim", claim(3, 0)).await.status, 204);
    let demand = bed.control().get(&format!("/demand?job={JOB}")).await.ok();
    assert_eq!(demand["assigned"], 2);
}

#[tokio::test]
async fn a_waiting_launcher_gets_the_next_session() {
    let bed = Bed::start().await;
    let launcher = bed.launcher("0", 1);
    let (claimed, created) = tokio::join!(launcher.post("/agent/claim", claim(1, 30)), async {
        let demand = format!("/demand?job={JOB}");
        while bed.control().get(&demand).await.json()["idle_claims"] != 1 {
            tokio::task::yield_now().await;
        }
        queued(&bed).await
    });
    assert_eq!(claimed.ok()["session_id"], created);
}

#[tokio::test]
async fn claims_need_the_pods_token() {
    let bed = Bed::start().await;
    assert_eq!(
        bed.agent().post("/agent/claim", claim(1, 0)).await.status,
        401
    );
    let forged = bed.agent().header("authorization", "Bearer swe/0/1/00");
    assert_eq!(forged.post("/agent/claim", claim(1, 0)).await.status, 401);
    let short = bed
        .launcher("0", 1)
        .post("/agent/claim", json!({"claim_id": "1"}))
        .await;
    assert_eq!(short.status, 400);
    let closed = Bed::with(vec![engine_config()], |config| config.claim_secret = None).await;
    assert_eq!(
        closed
            .launcher("0", 1)
            .post("/agent/claim", claim(1, 0))
            .await
            .status,
        403
    );
}

#[tokio::test]
async fn a_pod_whose_slot_has_a_newer_one_is_refused() {
    let bed = Bed::start().await;
    queued(&bed).await;
    assert_eq!(
        bed.launcher("0", 2)
            .post("/agent/claim", claim(1, 0))
            .await
            .status,
        200
    );
    let stale = bed.launcher("0", 1).post("/agent/claim", claim(2, 0)).await;
    assert_eq!(stale.status, 409);
    assert_eq!(stale.json()["error"]["code"], "stale_generation");
    assert_eq!(
        bed.launcher("1", 1)
            .post("/agent/claim", claim(3, 0))
            .await
            .status,
        204
    );
}

#[tokio::test]
async fn only_the_holder_may_speak_for_a_session() {
    let bed = Bed::start().await;
    let id = queued(&bed).await;
    let holder = bed.launcher("0", 1);
    let path = format!("/agent/sessions/{id}/heartbeat");
    assert_eq!(holder.post(&path, json!({})).await.status, 403);
    holder.post("/agent/claim", claim(1, 0)).await.ok();
    assert_eq!(holder.post(&path, json!({})).await.ok()["state"], "running");
    let result = format!("/agent/sessions/{id}/result");
    let body = json!({"outcome": "completed", "metadata": {"reward": 1}});
    for other in [bed.launcher("1", 1), bed.launcher("0", 2)] {
        assert_eq!(other.post(&path, json!({})).await.status, 403);
        assert_eq!(other.post(&result, body.clone()).await.status, 403);
    }
    assert_eq!(bed.agent().post(&result, body.clone()).await.status, 401);
    assert_eq!(
        holder.post(&result, body.clone()).await.ok()["accepted"],
        true
    );
    assert_eq!(
        holder
            .post(&result, json!({"outcome": "agent_failed"}))
            .await
            .ok()["accepted"],
        false
    );
    assert_eq!(holder.post(&path, json!({})).await.ok()["state"], "ended");
    let feed = outcomes(&bed, 0).await;
    assert_eq!(feed["outcomes"].as_array().unwrap().len(), 1);
    assert_eq!(feed["outcomes"][0]["outcome"], "completed");
    let gone = format!("/agent/sessions/{}/heartbeat", claim_id(9));
    assert_eq!(holder.post(&gone, json!({})).await.status, 404);
    assert_eq!(
        holder
            .post(&result, json!({"outcome": "great"}))
            .await
            .status,
        400
    );
}

#[tokio::test]
async fn outcomes_are_numbered_and_can_be_read_again_until_their_session_is_deleted() {
    let bed = Bed::start().await;
    let holder = bed.launcher("0", 1);
    let mut ids = Vec::new();
    for number in 0..3 {
        let id = queued(&bed).await;
        holder.post("/agent/claim", claim(number, 0)).await.ok();
        let long = "x".repeat(20_000);
        let body = json!({"outcome": "agent_failed", "exit_code": 2, "error": long});
        holder
            .post(&format!("/agent/sessions/{id}/result"), body)
            .await
            .ok();
        ids.push(id);
    }
    let feed = outcomes(&bed, 0).await;
    assert_eq!(feed["next"], 3);
    assert_eq!(feed["outcomes"][2]["seq"], 2);
    assert_eq!(feed["outcomes"][0]["error"].as_str().unwrap().len(), 8192);
    assert_eq!(
        outcomes(&bed, 2).await["outcomes"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(outcomes(&bed, 3).await["outcomes"], json!([]));
    bed.control().delete(&format!("/sessions/{}", ids[0])).await;
    let feed = outcomes(&bed, 0).await;
    assert_eq!(feed["outcomes"][0]["session_id"], ids[1]);
    assert_eq!(bed.control().get("/outcomes").await.status, 400);
    assert_eq!(
        bed.control().get("/outcomes?job=a&after=x").await.status,
        400
    );
}

#[tokio::test]
async fn a_long_poll_of_outcomes_ends_with_the_first_one() {
    let bed = Bed::start().await;
    let id = queued(&bed).await;
    let path = format!("/outcomes?job={JOB}&wait_seconds=30");
    let control = bed.control();
    let end = async {
        let body = json!({"outcome": "infra_failed", "error": "pod evicted"});
        control
            .post(&format!("/sessions/{id}/outcome"), body)
            .await
            .ok()
    };
    let (feed, ended) = tokio::join!(control.get(&path), end);
    assert_eq!(ended["accepted"], true);
    assert_eq!(feed.ok()["outcomes"][0]["error"], "pod evicted");
}

/// Moves the paused clock on until the feed has an outcome.
async fn next_outcome(bed: &Bed) -> Value {
    for _ in 0..10_000 {
        let feed = outcomes(bed, 0).await;
        if let Some(outcome) = feed["outcomes"].get(0) {
            return outcome.clone();
        }
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    panic!("no outcome")
}

/// A router without engines, under a paused clock.
async fn alone() -> Bed {
    Bed::with(Vec::new(), |config| {
        config.engines = vec!["http://127.0.0.1:1".to_owned()];
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_silent_launcher_loses_its_session() {
    let bed = alone().await;
    let id = queued(&bed).await;
    let holder = bed.launcher("0", 1);
    holder.post("/agent/claim", claim(1, 0)).await.ok();
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(5)).await;
        let path = format!("/agent/sessions/{id}/heartbeat");
        assert_eq!(holder.post(&path, json!({})).await.ok()["state"], "running");
    }
    let outcome = next_outcome(&bed).await;
    assert_eq!(outcome["outcome"], "infra_failed");
    assert!(outcome["error"].as_str().unwrap().contains("no heartbeat"));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_outlives_its_deadline_is_ended() {
    let bed = alone().await;
    let body = json!({"job": JOB, "assign": true, "deadline_seconds": 60});
    let id = bed.session(body).await;
    tokio::time::advance(Duration::from_mins(10)).await;
    let holder = bed.launcher("0", 1);
    let claimed = holder.post("/agent/claim", claim(1, 0)).await.ok();
    assert_eq!(claimed["deadline_seconds"], 60.0);
    let path = format!("/agent/sessions/{id}/heartbeat");
    let mut seconds = 0;
    while holder.post(&path, json!({})).await.ok()["state"] == "running" {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
        seconds += 1;
    }
    assert!((70..74).contains(&seconds), "{seconds}");
    assert_eq!(
        outcomes(&bed, 0).await["outcomes"][0]["outcome"],
        "deadline"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_removed() {
    let bed = alone().await;
    let id = bed.session(json!({})).await;
    let waiting = queued(&bed).await;
    let path = format!("/sessions/{id}");
    let mut minutes = 0;
    while bed.control().get(&path).await.status == 200 {
        tokio::time::advance(Duration::from_mins(1)).await;
        tokio::task::yield_now().await;
        minutes += 1;
    }
    assert!((60..63).contains(&minutes), "{minutes}");
    assert_eq!(
        bed.control()
            .get(&format!("/sessions/{waiting}"))
            .await
            .status,
        200
    );
}
