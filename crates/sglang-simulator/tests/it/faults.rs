//! Faults: by configuration, by call, and what a client sees of each.

use std::time::Duration;

use serde_json::{Value, json};
use sglang_simulator::{Config, Fault, FaultKind, Simulator};
use tokio::time::Instant;

use crate::support::{Reply, attempt, delete, get, post, simulator};

fn generate(tokens: u32) -> Value {
    json!({"input_ids": [1, 5, 6], "return_logprob": true, "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}})
}

fn faulty(fault: Fault) -> Simulator {
    simulator(Config {
        faults: vec![fault],
        ..Config::default()
    })
}

async fn try_generate(engine: &Simulator) -> Option<Reply> {
    attempt(engine, "/generate", generate(4)).await
}

#[tokio::test(start_paused = true)]
async fn statuses_have_sglangs_bodies() {
    let engine = faulty(Fault::new("/generate", FaultKind::Status503));
    let reply = post(&engine, "/generate", generate(4)).await;
    assert_eq!(reply.status, 503);
    let expected = json!({"object": "error", "message": "The request queue is full.", "type": "503", "param": null, "code": 503});
    assert_eq!(reply.json(), expected);
    engine.clear_faults();
    engine.add_fault(Fault::new("/generate", FaultKind::Status500));
    let reply = post(&engine, "/generate", generate(4)).await;
    assert_eq!(
        (reply.status, reply.text.as_str()),
        (500, "Internal Server Error")
    );
    assert_eq!(engine.state().finished, 0, "nothing was generated");
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_not_handled() {
    let engine = faulty(Fault::new("/generate", FaultKind::Refuse).times(1));
    assert!(try_generate(&engine).await.is_none());
    assert_eq!(engine.state().finished, 0);
    assert_eq!(
        try_generate(&engine).await.map(|reply| reply.status),
        Some(200),
        "only once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cut_body_breaks_off_after_its_headers() {
    let engine = faulty(Fault::new("/generate", FaultKind::CutBody));
    assert!(try_generate(&engine).await.is_none());
    assert_eq!(engine.state().finished, 1, "the engine did its work");
    assert_eq!(engine.state().paths["/generate"].statuses[&200], 1);
}

#[tokio::test(start_paused = true)]
async fn wrong_counts_claim_a_token_too_many() {
    let engine = faulty(Fault::new("/generate", FaultKind::WrongCounts));
    let answer = post(&engine, "/generate", generate(4)).await.json();
    assert_eq!(answer["meta_info"]["completion_tokens"], 5);
    assert_eq!(answer["output_ids"].as_array().unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn missing_ids_leave_the_text() {
    let engine = faulty(Fault::new("/v1/chat/completions", FaultKind::MissingIds));
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "logprobs": true,
        "return_prompt_token_ids": true, "return_token_ids": true, "return_meta_info": true});
    let choice = post(&engine, "/v1/chat/completions", body).await.json()["choices"][0].clone();
    assert!(choice["message"]["content"].is_string());
    assert!(choice.get("prompt_token_ids").is_none() && choice.get("response_token_ids").is_none());
    assert!(choice["meta_info"].get("output_token_logprobs").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stall_holds_back_the_request_and_a_slow_answer_only_the_answer() {
    let engine = faulty(
        Fault::new("/generate", FaultKind::Stall)
            .seconds(30.0)
            .times(1),
    );
    engine.add_fault(Fault::new("/generate", FaultKind::SlowFirstByte).seconds(20.0));
    let start = Instant::now();
    let (reply, ()) = tokio::join!(post(&engine, "/generate", generate(4)), async {
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(engine.state().finished, 0);
    });
    assert_eq!(reply.status, 200);
    assert_eq!(start.elapsed().as_secs(), 30);
    let start = Instant::now();
    let (reply, ()) = tokio::join!(post(&engine, "/generate", generate(4)), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(engine.state().finished, 2, "it is ready long before");
    });
    assert_eq!(reply.status, 200);
    assert_eq!(start.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn death_ends_everything() {
    let engine = faulty(Fault::new("/generate", FaultKind::Death).after(1));
    let (first, second) = tokio::join!(attempt(&engine, "/generate", generate(3000)), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        try_generate(&engine).await
    });
    assert!(first.is_none() && second.is_none());
    assert!(engine.is_dead());
    assert!(try_generate(&engine).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn faults_are_set_and_removed_by_call() {
    let engine = simulator(Config::default());
    let fault = json!({"path": "/generate", "kind": "Status503", "times": 1});
    let reply = post(&engine, "/simulator/faults", fault).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(post(&engine, "/generate", generate(1)).await.status, 503);
    assert_eq!(post(&engine, "/generate", generate(1)).await.status, 200);
    assert_eq!(get(&engine, "/simulator/faults").await.json()[0]["hits"], 1);
    let bad = post(&engine, "/simulator/faults", json!({"kind": "Meteor"})).await;
    assert_eq!(bad.status, 400);
    assert!(
        bad.text
            .contains("unknown variant `Meteor`, expected one of `Refuse`"),
        "{}",
        bad.text
    );
    assert_eq!(delete(&engine, "/simulator/faults").await.status, 200);
    assert_eq!(
        get(&engine, "/simulator/state").await.json()["faults"],
        json!([])
    );
}

#[test]
fn a_bad_configuration_names_the_field() {
    let refused = |config: Config| Simulator::new(config).unwrap_err().to_string();
    let fault = Fault {
        percent: 101,
        ..Fault::new("/generate", FaultKind::Refuse)
    };
    assert_eq!(
        refused(Config {
            faults: vec![fault],
            ..Config::default()
        }),
        "faults[0]: percent is 101; write 0 to 100"
    );
    assert_eq!(
        refused(Config {
            faults: vec![Fault::new("/v1/generate", FaultKind::Refuse)],
            ..Config::default()
        }),
        "faults[0]: the engine has no path /v1/generate, so it would hit nothing; write one such as /generate or /v1/chat/completions, or none for all"
    );
    let mut nameless = Config::default();
    nameless.server.served_model_name = Some(String::new());
    assert_eq!(
        refused(nameless),
        "server.servedModelName: is empty; leave it out, or write a name"
    );
    assert_eq!(
        refused(Config {
            time_scale: 0,
            ..Config::default()
        }),
        "timeScale: must be at least 1"
    );
    let error = refused(Config {
        kv_cache_tokens: 100,
        ..Config::default()
    });
    assert!(
        error.starts_with("kvCacheTokens: is 100, but one request may take 32768 tokens"),
        "{error}"
    );
}
