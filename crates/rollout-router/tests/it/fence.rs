//! After a fence nothing of its scope reaches an engine, and what was there is gone.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind};

use crate::support::{Answer, Bed, JOB, eventually, slow_engine_config, user};

fn endless() -> Value {
    json!({"messages": [user("hi")], "max_tokens": 20_000, "ignore_eos": true})
}

fn endless_generate() -> Value {
    json!({"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 20_000, "ignore_eos": true}})
}

fn running(bed: &Bed) -> usize {
    bed.engines
        .iter()
        .map(|engine| engine.simulator.state().running)
        .sum()
}

fn assert_closed(answer: &Answer) {
    assert_eq!(answer.status, 410, "{:?}", answer.body);
    assert_eq!(answer.headers["x-should-retry"], "false");
    let error = &answer.json()["error"];
    assert_eq!(error["type"], "rollout_closed");
    assert_eq!(error["code"], "rollout_closed");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .starts_with("rollout closed: ")
    );
}

#[tokio::test]
async fn a_fence_ends_what_runs_and_refuses_what_comes() {
    let bed = Bed::with(vec![slow_engine_config(), slow_engine_config()], |_| {}).await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(bed.session(json!({"job": JOB})).await);
    }
    let bystander = bed.session(json!({"job": "other"})).await;
    let turns = join_all(sessions.iter().map(|id| bed.chat(id, endless())));
    let of_job = bed.control().header("x-rollout-job", JOB);
    let passing = of_job.post("/generate", endless_generate());
    let fence = async {
        eventually("four requests run", || running(&bed) == 4).await;
        bed.control().post("/fence", json!({"job": JOB})).await.ok()
    };
    let (turns, passing, report) = tokio::join!(turns, passing, fence);
    assert_eq!(report["sessions"], 3);
    assert_eq!(report["requests"], 4);
    assert_eq!(report["left"], 0);
    assert_eq!(report["unproven"], 0);
    let aborted: u64 = report["engines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|engine| engine["aborted"].as_u64().unwrap())
        .sum();
    assert_eq!(aborted, 4);
    assert_eq!(running(&bed), 0);
    for (id, turn) in sessions.iter().zip(turns) {
        assert_eq!(turn.ok()["choices"][0]["finish_reason"], "abort");
        let collected = bed.samples(id, json!({})).await;
        assert_eq!(
            collected.samples[0].status,
            rollout_session::SampleStatus::Aborted
        );
        assert!(collected.samples[0].response_length > 0);
        assert_closed(&bed.chat(id, endless()).await);
    }
    assert_eq!(passing.ok()["meta_info"]["finish_reason"]["type"], "abort");
    assert_closed(&of_job.post("/generate", endless_generate()).await);
    assert_closed(&bed.control().post("/sessions", json!({"job": JOB})).await);
    let claim = json!({"claim_id": "0123456789abcdef0123456789abcdef", "wait_seconds": 20});
    assert_closed(&bed.launcher("0", 1).post("/agent/claim", claim).await);
    let short = json!({"messages": [user("hi")], "max_tokens": 2});
    bed.chat(&bystander, short.clone()).await.ok();
    bed.control()
        .post(
            "/generate",
            json!({"text": "a", "sampling_params": {"max_new_tokens": 1}}),
        )
        .await
        .ok();

    let again = bed.control().post("/fence", json!({"job": JOB})).await.ok();
    assert_eq!(again["requests"], 0);
    assert_eq!(
        bed.control()
            .send("DELETE", "/fence", json!({"job": JOB}).to_string())
            .await
            .ok()["opened"],
        true
    );
    assert_eq!(
        bed.control()
            .send("DELETE", "/fence", json!({"job": JOB}).to_string())
            .await
            .ok()["opened"],
        false
    );
    bed.chat(&sessions[0], short).await.ok();
}

#[tokio::test]
async fn a_fence_of_one_step_or_some_sessions_leaves_the_others() {
    let bed = Bed::start().await;
    let first = bed.session(json!({"job": JOB, "rollout_id": 1})).await;
    let second = bed.session(json!({"job": JOB, "rollout_id": 2})).await;
    let short = json!({"messages": [user("hi")], "max_tokens": 2});
    bed.control()
        .post("/fence", json!({"job": JOB, "rollout_id": 1}))
        .await
        .ok();
    assert_closed(&bed.chat(&first, short.clone()).await);
    bed.chat(&second, short.clone()).await.ok();
    let headers = |step: &str| {
        bed.control()
            .header("x-rollout-job", JOB)
            .header("x-rollout-id", step)
    };
    let generate = json!({"text": "a", "sampling_params": {"max_new_tokens": 1}});
    assert_closed(&headers("1").post("/generate", generate.clone()).await);
    headers("2").post("/generate", generate).await.ok();
    bed.control()
        .post("/fence", json!({"job": JOB, "session_ids": [second]}))
        .await
        .ok();
    assert_closed(&bed.chat(&second, short).await);
}

#[tokio::test]
async fn a_waiting_claim_is_told_at_once() {
    let bed = Bed::start().await;
    let claim = json!({"claim_id": "0123456789abcdef0123456789abcdef", "wait_seconds": 30});
    let launcher = bed.launcher("0", 1);
    let waiting = launcher.post("/agent/claim", claim);
    let fence = async {
        let demand = format!("/demand?job={JOB}");
        while bed.control().get(&demand).await.json()["idle_claims"] != 1 {
            tokio::task::yield_now().await;
        }
        bed.control().post("/fence", json!({"job": JOB})).await.ok();
        assert_eq!(bed.control().get(&demand).await.json()["closed"], true);
    };
    let (answer, ()) = tokio::time::timeout(Duration::from_secs(10), async {
        tokio::join!(waiting, fence)
    })
    .await
    .unwrap();
    assert_closed(&answer);
}

#[tokio::test]
async fn a_request_between_parse_and_hand_over_is_caught_by_a_repeated_abort() {
    let bed = Bed::with(vec![slow_engine_config()], |config| {
        config.times.abort_repeat = Duration::from_millis(20);
    })
    .await;
    let simulator = &bed.engines[0].simulator;
    // The engine has the request, but it stands before the scheduler: an abort finds nothing.
    simulator.add_fault(Fault::new("/v1/chat/completions", FaultKind::Stall).seconds(0.3));
    let id = bed.session(json!({"job": JOB})).await;
    let turn = bed.chat(&id, endless());
    let fence = async {
        eventually("the request arrives", || {
            simulator.state().paths.contains_key("/v1/chat/completions")
        })
        .await;
        bed.control()
            .post("/fence", json!({"job": JOB, "deadline_seconds": 20}))
            .await
            .ok()
    };
    let (_, report) = tokio::join!(turn, fence);
    assert_eq!(report["left"], 0, "{report}");
    assert_eq!(report["engines"][0]["aborted"], 1);
    assert!(simulator.state().paths["/abort_request"].requests > 1);
    assert_eq!(running(&bed), 0);
}

#[tokio::test]
async fn a_request_at_the_gate_of_a_paused_engine_is_unproven_and_aborted_when_it_comes_through() {
    let bed = Bed::with(vec![slow_engine_config()], |config| {
        config.times.abort_repeat = Duration::from_millis(20);
    })
    .await;
    let simulator = &bed.engines[0].simulator;
    let id = bed.session(json!({"job": JOB})).await;
    bed.engines[0].pause().await;
    let turn = bed.chat(&id, endless());
    let fence = async {
        eventually("the request waits at the gate", || {
            simulator.state().gated == 1
        })
        .await;
        let fence = json!({"job": JOB, "deadline_seconds": 0.2});
        let report = bed.control().post("/fence", fence).await.ok();
        bed.engines[0].resume().await;
        report
    };
    let (turn, report) = tokio::join!(turn, fence);
    assert_eq!(report["unproven"], 1, "{report}");
    assert_eq!(report["left"], 0);
    assert_eq!(turn.ok()["choices"][0]["finish_reason"], "abort");
    assert_eq!(running(&bed), 0);
}

#[tokio::test]
async fn a_dead_engine_holds_up_nobody() {
    let bed = Bed::with(vec![slow_engine_config(), slow_engine_config()], |_| {}).await;
    let of_job = bed.control().header("x-rollout-job", JOB);
    let calls = join_all((0..6).map(|_| of_job.post("/generate", endless_generate())));
    let fence = async {
        eventually("six requests run", || running(&bed) == 6).await;
        bed.engines[0]
            .simulator
            .add_fault(Fault::new("/abort_request", FaultKind::Stall));
        bed.control()
            .post("/fence", json!({"job": JOB, "deadline_seconds": 0.5}))
            .await
            .ok()
    };
    let report = tokio::select! {
        report = fence => report,
        _ = calls => panic!("the stalled engine answered"),
    };
    let of = |index: usize| {
        let engines = report["engines"].as_array().unwrap();
        engines
            .iter()
            .find(|engine| engine["url"] == bed.engines[index].url)
            .unwrap()
    };
    assert_eq!(of(1)["aborted"], 3, "{report}");
    assert!(of(1)["told_millis"].is_u64(), "{report}");
    assert!(of(0)["told_millis"].is_null(), "{report}");
    assert_eq!(of(0)["left"], 3, "{report}");
    assert_eq!(report["left"], 3);
    assert_eq!(bed.engines[1].simulator.state().running, 0);
}

#[tokio::test]
async fn requests_can_be_aborted_by_their_id() {
    let bed = Bed::with(vec![slow_engine_config(), slow_engine_config()], |_| {}).await;
    let mut body = endless_generate();
    body["rid"] = json!("mine");
    let control = bed.control();
    let call = control.post("/generate", body);
    let abort = async {
        eventually("the request runs", || running(&bed) == 1).await;
        bed.control()
            .post("/abort_request", json!({"rid": "mine"}))
            .await
            .ok()
    };
    let (answer, report) = tokio::join!(call, abort);
    assert_eq!(answer.ok()["meta_info"]["finish_reason"]["type"], "abort");
    assert_eq!(report["engines"][0]["status"], 200);
    assert_eq!(report["engines"][0]["found"], true);
    let unknown = bed
        .control()
        .post("/abort_request", json!({"rid": "nobody"}))
        .await;
    assert_eq!(unknown.status, 404);
    assert_eq!(
        bed.control().post("/abort_request", json!({})).await.status,
        400
    );
    let all = bed
        .control()
        .post("/abort_request", json!({"abort_all": true}))
        .await
        .ok();
    assert_eq!(all["engines"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_deleted_session_leaves_nothing_at_the_engine() {
    let bed = Bed::with(vec![slow_engine_config()], |_| {}).await;
    let id = bed.session(json!({})).await;
    let turn = bed.chat(&id, endless());
    let delete = async {
        eventually("the request runs", || running(&bed) == 1).await;
        bed.control().delete(&format!("/sessions/{id}")).await
    };
    let (turn, deleted) = tokio::join!(turn, delete);
    assert_eq!(deleted.status, 204);
    assert!(matches!(turn.status.as_u16(), 404 | 410), "{:?}", turn.body);
    eventually("nothing runs", || running(&bed) == 0).await;
}

#[tokio::test]
async fn a_thousand_requests_at_eight_engines_are_gone_after_a_fence() {
    let bed = Bed::with(vec![slow_engine_config(); 8], |_| {}).await;
    let of_job = bed.control().header("x-rollout-job", JOB);
    let calls = join_all((0..1_000).map(|_| of_job.post("/generate", endless_generate())));
    let fence = async {
        eventually("all requests are at the engines", || {
            let states = bed.engines.iter().map(|engine| engine.simulator.state());
            states
                .map(|state| state.running + state.waiting)
                .sum::<usize>()
                == 1_000
        })
        .await;
        bed.control()
            .post("/fence", json!({"job": JOB, "deadline_seconds": 60}))
            .await
            .ok()
    };
    let (answers, report) = tokio::join!(calls, fence);
    assert_eq!(report["requests"], 1_000);
    assert_eq!(report["left"], 0, "{report}");
    assert_eq!(report["unproven"], 0);
    assert!(answers.iter().all(|answer| answer.status == 200));
    for engine in &bed.engines {
        assert_eq!(engine.simulator.state().in_flight, Vec::<String>::new());
    }
}
