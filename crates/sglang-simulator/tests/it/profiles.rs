//! The two wires.

use std::time::Duration;

use serde_json::json;
use sglang_simulator::{Config, Profile};

use crate::support::{post, simulator};

#[tokio::test(start_paused = true)]
async fn only_the_fork_has_token_ids_in_the_log_probabilities_of_a_chat() {
    for (profile, expected) in [(Profile::Stock, false), (Profile::MilesFork, true)] {
        let engine = simulator(Config {
            profile,
            ..Config::default()
        });
        let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": true, "logprobs": true,
            "return_token_ids": true});
        let choice = post(&engine, "/v1/chat/completions", body).await.json()["choices"][0].clone();
        let entries = choice["logprobs"]["content"].as_array().unwrap();
        let ids: Vec<_> = entries
            .iter()
            .filter_map(|entry| entry.get("token_id").cloned())
            .collect();
        assert_eq!(ids.len(), if expected { 5 } else { 0 });
        assert!(!expected || json!(ids) == choice["response_token_ids"]);
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_fork_aborts_by_prefix() {
    for (profile, aborted) in [(Profile::Stock, false), (Profile::MilesFork, true)] {
        let engine = simulator(Config {
            profile,
            ..Config::default()
        });
        let body = json!({"input_ids": [1, 5], "rid": "job::1", "sampling_params": {"max_new_tokens": 300, "ignore_eos": true}});
        let (reply, ()) = tokio::join!(post(&engine, "/generate", body), async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            post(
                &engine,
                "/abort_request",
                json!({"rid": "job::", "prefix": true}),
            )
            .await;
        });
        let reason = &reply.json()["meta_info"]["finish_reason"]["type"];
        assert_eq!(reason, if aborted { "abort" } else { "length" });
    }
}
