//! One session from its creation to its samples.

use http::StatusCode;
use rollout_session::SampleStatus;
use serde_json::json;

use crate::support::{Bed, JOB, user};

const CLAIM: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn a_session_is_claimed_talked_to_ended_and_collected() {
    let bed = Bed::start().await;
    let created = bed
        .control()
        .post(
            "/sessions",
            json!({
                "job": JOB, "rollout_id": 4, "assign": true, "prompt": [user("2+2?")], "max_seq_len": 4096,
                "request_kwargs": {"temperature": 0.5}, "metadata": {"task": "sum"}, "deadline_seconds": 60,
            }),
        )
        .await
        .ok();
    let id = created["session_id"].as_str().unwrap().to_owned();
    assert_eq!(
        created["base_url"],
        format!("http://router:8080/sessions/{id}")
    );

    let launcher = bed.launcher("0", 1);
    let claim = launcher
        .post(
            "/agent/claim",
            json!({"claim_id": CLAIM, "wait_seconds": 5}),
        )
        .await
        .ok();
    assert_eq!(claim["session_id"], id);
    assert_eq!(claim["prompt"], json!([user("2+2?")]));
    assert_eq!(claim["request_kwargs"], json!({"temperature": 0.5}));
    assert_eq!(claim["metadata"]["task"], "sum");
    assert_eq!(claim["metadata"]["max_seq_len"], 4096);
    assert_eq!(claim["metadata"]["session_server_id"], "router:8080");
    let again = launcher
        .post("/agent/claim", json!({"claim_id": CLAIM}))
        .await
        .ok();
    assert_eq!(again["session_id"], id);

    let mut messages = vec![user("2+2?")];
    for turn in 0..3 {
        let reply = bed
            .chat(
                &id,
                json!({"model": "m", "messages": messages, "max_tokens": 20, "ignore_eos": true}),
            )
            .await
            .ok();
        assert_eq!(
            reply["choices"][0]["finish_reason"], "length",
            "turn {turn}"
        );
        messages.push(reply["choices"][0]["message"].clone());
        messages.push(user("go on"));
    }

    let result = launcher
        .post(
            &format!("/agent/sessions/{id}/result"),
            json!({"outcome": "completed", "exit_code": 0, "metadata": {"reward": 1.0}, "agent_seconds": 1.5}),
        )
        .await
        .ok();
    assert_eq!(result["accepted"], true);
    let late = bed.chat(&id, json!({"messages": messages})).await;
    assert_eq!(late.status, StatusCode::GONE);
    assert_eq!(late.headers["x-should-retry"], "false");

    let feed = bed
        .control()
        .get(&format!("/outcomes?job={JOB}&after=0&wait_seconds=5"))
        .await
        .ok();
    assert_eq!(feed["outcomes"][0]["session_id"], id);
    assert_eq!(feed["outcomes"][0]["outcome"], "completed");
    assert_eq!(feed["outcomes"][0]["turns"], 3);
    assert_eq!(feed["outcomes"][0]["metadata"]["reward"], 1.0);
    assert_eq!(feed["next"], 1);

    let collected = bed
        .samples(&id, json!({"max_seq_len": 4096, "split": true}))
        .await;
    assert_eq!(collected.session_metadata["turns"], 3);
    let sample = &collected.samples[0];
    assert_eq!(sample.status, SampleStatus::Truncated);

    let path = format!("/sessions/{id}");
    for _ in 0..2 {
        let deleted = bed.control().delete(&path).await;
        assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    }
    let gone = bed.control().get(&path).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    assert_eq!(gone.error(), format!("session not found: session_id={id}"));
    let feed = bed
        .control()
        .get(&format!("/outcomes?job={JOB}"))
        .await
        .ok();
    assert_eq!(feed["outcomes"], json!([]));
}

#[tokio::test]
async fn generate_passes_through_with_an_id() {
    let bed = Bed::start().await;
    let reply = bed
        .control()
        .post("/generate", json!({"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 4, "ignore_eos": true}, "return_logprob": true}))
        .await
        .ok();
    assert_eq!(reply["meta_info"]["id"].as_str().unwrap().len(), 32);
    let rows = reply["meta_info"]["output_token_logprobs"].as_array();
    assert_eq!(rows.map(Vec::len), Some(4));
}
