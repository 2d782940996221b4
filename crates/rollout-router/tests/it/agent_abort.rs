//! The order to abort agents: every launcher once, its hook counted once per process.

use serde_json::{Value, json};

use crate::support::{Bed, Client, JOB};

struct Pod {
    client: Client,
    session: String,
}

async fn pod(bed: &Bed, slot: &str, number: u8) -> Pod {
    let session = bed
        .session(json!({"job": JOB, "rollout_id": 1, "assign": true}))
        .await;
    let client = bed.launcher(slot, 1);
    let claim = json!({"claim_id": format!("{number:032x}"), "wait_seconds": 5});
    assert_eq!(
        client.post("/agent/claim", claim).await.ok()["session_id"],
        session
    );
    Pod { client, session }
}

impl Pod {
    async fn event(&self) -> Value {
        let path = format!("/agent/sessions/{}/events?wait_seconds=30", self.session);
        self.client.get(&path).await.ok()
    }

    async fn end(&self, hook: Value) {
        let body = json!({"outcome": "aborted", "hook": hook});
        let path = format!("/agent/sessions/{}/result", self.session);
        self.client.post(&path, body).await.ok();
    }
}

fn order() -> Value {
    json!({"job": JOB, "rollout_id": 1, "reason": "target reached", "timeout_seconds": 20, "drain_seconds": 5, "args": {"rollout_id": 1}})
}

#[tokio::test]
async fn every_launcher_is_told_and_hooks_are_counted_per_process() {
    let bed = Bed::start().await;
    let hooked = pod(&bed, "0", 1).await;
    let sibling = pod(&bed, "0", 2).await;
    let hookless = pod(&bed, "1", 3).await;
    let failing = pod(&bed, "2", 4).await;
    let waiting = bed
        .session(json!({"job": JOB, "rollout_id": 1, "assign": true}))
        .await;
    let bystander = bed
        .session(json!({"job": JOB, "rollout_id": 2, "assign": true}))
        .await;
    let launchers = async {
        let event = hooked.event().await;
        assert_eq!(event["event"], "abort");
        assert_eq!(event["reason"], "target reached");
        assert_eq!(event["timeout_seconds"], 20.0);
        assert_eq!(event["drain_seconds"], 5.0);
        assert_eq!(event["args"]["rollout_id"], 1);
        let id = event["abort_id"].clone();
        assert_eq!(sibling.event().await["abort_id"], id);
        assert_eq!(failing.event().await["abort_id"], id);
        let beat = format!("/agent/sessions/{}/heartbeat", hookless.session);
        assert_eq!(
            hookless.client.post(&beat, json!({})).await.ok()["state"],
            "aborting"
        );
        hooked
            .end(json!({"abort_id": id, "result": "succeeded"}))
            .await;
        sibling
            .end(json!({"abort_id": id, "result": "succeeded"}))
            .await;
        hookless.end(Value::Null).await;
        failing
            .end(json!({"abort_id": id, "result": "failed", "error": "boom"}))
            .await;
    };
    let control = bed.control();
    let (report, ()) = tokio::join!(control.post("/agent-abort", order()), launchers);
    let report = report.ok();
    assert_eq!(report["launchers"], 3);
    assert_eq!(report["sessions"], 5);
    assert_eq!(
        report["hooks"],
        json!({"succeeded": 1, "none": 1, "failed": 1, "timed_out": 0})
    );
    assert_eq!(report["errors"], json!(["slot 2: boom"]));
    let feed = control.get(&format!("/outcomes?job={JOB}")).await.ok();
    let outcomes = feed["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 5);
    assert!(
        outcomes
            .iter()
            .any(|outcome| outcome["session_id"] == waiting)
    );
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome["outcome"] == "aborted")
    );
    assert_eq!(
        control.get(&format!("/sessions/{bystander}")).await.ok()["story"]["state"],
        "queued"
    );
    let again = control.post("/agent-abort", order()).await.ok();
    assert_eq!(again["sessions"], 4, "the same account of the same abort");
    assert_eq!(again["hooks"], report["hooks"]);
}

#[tokio::test]
async fn an_agent_that_ends_with_its_request_is_told_by_the_answer_to_its_result() {
    let bed = Bed::start().await;
    let quick = pod(&bed, "0", 1).await;
    let sibling = pod(&bed, "0", 2).await;
    let old = pod(&bed, "1", 3).await;
    let control = bed.control();
    let terms = json!({"reason": "target reached", "timeout_seconds": 20, "drain_seconds": 5, "args": {"rollout_id": 1}});
    let fence = json!({"job": JOB, "rollout_id": 1, "agent_abort": terms});
    control.post("/fence", fence.clone()).await.ok();
    let path = |pod: &Pod| format!("/agent/sessions/{}/result", pod.session);
    let ended = json!({"outcome": "completed", "runs_hooks": true});
    let answer = quick.client.post(&path(&quick), ended.clone()).await.ok();
    assert_eq!(answer["accepted"], false);
    assert_eq!(answer["abort"]["args"]["rollout_id"], 1);
    let id = &answer["abort"]["abort_id"];
    let beat = format!("/agent/sessions/{}/heartbeat", quick.session);
    let state = quick.client.post(&beat, json!({})).await.ok();
    assert_eq!(state["state"], "aborting", "it has not ended yet");
    let with_hook =
        json!({"outcome": "completed", "hook": {"abort_id": id, "result": "succeeded"}});
    let answer = quick.client.post(&path(&quick), with_hook).await.ok();
    assert_eq!(answer, json!({"accepted": true}));
    // The hook of its process is known; a launcher that runs none after the end says nothing of it.
    let answer = sibling.client.post(&path(&sibling), ended).await.ok();
    assert_eq!(answer, json!({"accepted": true}));
    let answer = old
        .client
        .post(&path(&old), json!({"outcome": "completed"}))
        .await
        .ok();
    assert_eq!(answer, json!({"accepted": true}));
    let report = control.post("/agent-abort", order()).await.ok();
    assert_eq!(
        (&report["launchers"], &report["sessions"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(
        report["hooks"],
        json!({"succeeded": 1, "none": 1, "failed": 0, "timed_out": 0})
    );
    // Opened and closed again: another abort.
    control
        .send("DELETE", "/fence", json!({"job": JOB}).to_string())
        .await;
    let next = pod(&bed, "2", 4).await;
    control.post("/fence", fence).await.ok();
    let event = next.event().await;
    assert_ne!(&event["abort_id"], id);
}

#[tokio::test(start_paused = true)]
async fn a_silent_launcher_is_reported_and_its_session_ended() {
    let bed = Bed::with(Vec::new(), |config| {
        config.engines = vec!["http://127.0.0.1:1".to_owned()];
        config.times.heartbeat = std::time::Duration::from_mins(10);
    })
    .await;
    let silent = pod(&bed, "7", 1).await;
    let report = bed.control().post("/agent-abort", order()).await.ok();
    assert_eq!(report["hooks"]["timed_out"], 1);
    assert!(report["errors"][0].as_str().unwrap().contains("slot 7"));
    let beat = format!("/agent/sessions/{}/heartbeat", silent.session);
    assert_eq!(
        silent.client.post(&beat, json!({})).await.ok()["state"],
        "ended"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_is_not_given_again_to_a_launcher_that_has_it() {
    let bed = Bed::with(Vec::new(), |config| {
        config.engines = vec!["http://127.0.0.1:1".to_owned()];
        config.times.heartbeat = std::time::Duration::from_mins(10);
    })
    .await;
    let pod = pod(&bed, "0", 1).await;
    let control = bed.control();
    let launcher = async {
        let id = pod.event().await["abort_id"].as_str().unwrap().to_owned();
        let path = format!(
            "/agent/sessions/{}/events?wait_seconds=1&seen={id}",
            pod.session
        );
        assert_eq!(pod.client.get(&path).await.status, 204);
        assert_eq!(pod.event().await["abort_id"], id.as_str());
        pod.end(Value::Null).await;
    };
    let (report, ()) = tokio::join!(control.post("/agent-abort", order()), launcher);
    assert_eq!(report.ok()["hooks"]["none"], 1);
}
