//! Engines that refuse, stall, lie and die: the client is told, nothing is recorded, the session goes on.

use std::time::Duration;

use serde_json::{Value, json};
use sglang_simulator::{Fault, FaultKind};

use crate::support::{Bed, engine_config, eventually, user};

const CHAT: &str = "/v1/chat/completions";

fn hello() -> Value {
    json!({"messages": [user("hi")], "max_tokens": 3, "ignore_eos": true})
}

async fn recorded(bed: &Bed, id: &str) -> usize {
    let view = bed.control().get(&format!("/sessions/{id}")).await.ok();
    view["records"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_reply_that_lies_is_a_502_with_the_reason() {
    for (kind, reason) in [
        (
            FaultKind::WrongCounts,
            "len(output_token_logprobs)=3 != completion_tokens=4",
        ),
        (FaultKind::MissingIds, "no output token ids"),
    ] {
        let bed = Bed::start().await;
        let id = bed.session(json!({})).await;
        bed.chat(&id, hello()).await.ok();
        bed.engines[0]
            .simulator
            .add_fault(Fault::new(CHAT, kind).times(1));
        let answer = bed.chat(&id, hello()).await;
        assert_eq!(answer.status, 502);
        assert!(answer.error().contains(reason), "{}", answer.error());
        assert_eq!(recorded(&bed, &id).await, 1);
        let story = bed.control().get(&format!("/sessions/{id}")).await.ok();
        assert!(
            story["story"]["last_error"]
                .as_str()
                .unwrap()
                .contains(reason)
        );
        bed.chat(&id, hello()).await.ok();
        assert_eq!(recorded(&bed, &id).await, 2);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_502_and_is_not_sent_again() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    bed.engines[0]
        .simulator
        .add_fault(Fault::new(CHAT, FaultKind::CutBody).times(1));
    let answer = bed.chat(&id, hello()).await;
    assert_eq!(answer.status, 502);
    assert!(
        answer.error().starts_with("backend transport error: "),
        "{}",
        answer.error()
    );
    assert_eq!(recorded(&bed, &id).await, 0);
    assert_eq!(bed.engines[0].simulator.state().paths[CHAT].requests, 1);
}

#[tokio::test]
async fn a_connection_that_closes_without_an_answer_is_not_sent_again() {
    let bed = Bed::with(vec![engine_config(), engine_config()], |_| {}).await;
    let id = bed.session(json!({})).await;
    for engine in &bed.engines {
        engine
            .simulator
            .add_fault(Fault::new(CHAT, FaultKind::Refuse));
    }
    let answer = bed.chat(&id, hello()).await;
    assert_eq!(answer.status, 502);
    let hits: u64 = bed
        .engines
        .iter()
        .map(|engine| engine.simulator.state().faults[0].hits)
        .sum();
    assert_eq!(hits, 1);
}

#[tokio::test]
async fn errors_of_an_engine_keep_their_status() {
    for (kind, status) in [(FaultKind::Status500, 500), (FaultKind::Status503, 503)] {
        let bed = Bed::start().await;
        let id = bed.session(json!({})).await;
        bed.engines[0]
            .simulator
            .add_fault(Fault::new(CHAT, kind).times(1));
        assert_eq!(bed.chat(&id, hello()).await.status, status);
        assert_eq!(recorded(&bed, &id).await, 0);
    }
}

#[tokio::test]
async fn an_engine_that_is_not_there_costs_nothing_when_another_one_is() {
    let bed = Bed::with(vec![engine_config(), engine_config()], |config| {
        config.times.probe = Duration::from_hours(1);
    })
    .await;
    let id = bed.session(json!({})).await;
    bed.chat(&id, hello()).await.ok();
    let story = bed.control().get(&format!("/sessions/{id}")).await.ok();
    let first = story["story"]["engine"].as_str().unwrap().to_owned();
    let dead = bed
        .engines
        .iter()
        .find(|engine| engine.url == first)
        .unwrap();
    dead.simulator.kill();
    bed.chat(&id, hello()).await.ok();
    let story = bed.control().get(&format!("/sessions/{id}")).await.ok();
    assert_ne!(story["story"]["engine"], first);
    for _ in 0..4 {
        let body = json!({"input_ids": [5], "sampling_params": {"max_new_tokens": 1}});
        bed.control().post("/generate", body).await.ok();
    }
}

#[tokio::test]
async fn without_any_engine_the_client_is_told_to_come_back() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    bed.engines[0].simulator.kill();
    let answer = bed.chat(&id, hello()).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.json()["error"]["code"], "no_engine");
    let forwarded = bed.control().post("/generate", json!({"text": "a"})).await;
    assert_eq!(forwarded.status, 503);
}

#[tokio::test]
async fn an_engine_that_dies_during_a_generation_is_a_502_and_its_session_goes_on_elsewhere() {
    let mut slow = engine_config();
    slow.time_scale = 1;
    let bed = Bed::with(vec![slow.clone(), slow], |_| {}).await;
    let id = bed.session(json!({})).await;
    let long = json!({"messages": [user("hi")], "max_tokens": 10_000, "ignore_eos": true});
    let call = bed.chat(&id, long);
    let busy = || {
        bed.engines
            .iter()
            .position(|engine| engine.simulator.state().running > 0)
    };
    let kill = async {
        eventually("the request runs", || busy().is_some()).await;
        bed.engines[busy().unwrap()].simulator.kill();
    };
    let (answer, ()) = tokio::join!(call, kill);
    assert_eq!(answer.status, 502, "{:?}", answer.body);
    assert_eq!(recorded(&bed, &id).await, 0);
    bed.chat(&id, hello()).await.ok();
}

#[tokio::test]
async fn a_silent_engine_is_given_up_after_the_first_byte_limit_and_its_request_aborted() {
    let bed = Bed::with(vec![engine_config()], |config| {
        config.times.first_byte = Some(Duration::from_millis(100));
    })
    .await;
    let id = bed.session(json!({})).await;
    bed.engines[0]
        .simulator
        .add_fault(Fault::new(CHAT, FaultKind::SlowFirstByte).times(1));
    let answer = bed.chat(&id, hello()).await;
    assert_eq!(answer.status, 504);
    assert_eq!(recorded(&bed, &id).await, 0);
    eventually("the abort", || {
        bed.engines[0]
            .simulator
            .state()
            .paths
            .contains_key("/abort_request")
    })
    .await;
}

#[tokio::test]
async fn an_engine_leaves_and_comes_back_with_its_probes() {
    let bed = Bed::with(vec![engine_config()], |config| {
        config.times.probe = Duration::from_millis(5);
    })
    .await;
    let simulator = &bed.engines[0].simulator;
    simulator.add_fault(Fault::new("/ping", FaultKind::Status503));
    let control = bed.control();
    let ready_is = |wanted: u16| {
        let control = control.clone();
        async move {
            while control.get("/ready").await.status != wanted {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    };
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, ready_is(503)).await.unwrap();
    assert!(
        control.get("/ready").await.json()["missing"][0]
            .as_str()
            .unwrap()
            .contains("no engine")
    );
    let body = json!({"input_ids": [5], "sampling_params": {"max_new_tokens": 1}});
    control.post("/generate", body).await.ok();
    simulator.clear_faults();
    tokio::time::timeout(limit, ready_is(200)).await.unwrap();
    assert!(!simulator.state().paths.contains_key("/health"));
}

#[tokio::test]
async fn a_passed_answer_that_breaks_off_breaks_off_for_the_client_too() {
    use http_body_util::{BodyExt, Full};

    let bed = Bed::start().await;
    let simulator = &bed.engines[0].simulator;
    simulator.add_fault(Fault::new("/generate", FaultKind::CutBody).times(1));
    let body = json!({"input_ids": [5], "sampling_params": {"max_new_tokens": 4}});
    let request = http::Request::post("/generate")
        .body(Full::new(bytes::Bytes::from(body.to_string())))
        .unwrap();
    let response = bed.router.control_service().respond(request).await;
    assert_eq!(response.status(), 200);
    assert!(response.into_body().collect().await.is_err());
    eventually("the engine was told", || {
        simulator.state().paths.contains_key("/abort_request")
    })
    .await;
    bed.control().post("/generate", body).await.ok();
}
