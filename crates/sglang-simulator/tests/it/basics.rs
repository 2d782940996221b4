//! The first things that anybody tries.

use serde_json::json;
use sglang_simulator::Config;

use crate::support::{get, post, simulator};

#[tokio::test(start_paused = true)]
async fn ids_in_ids_and_log_probabilities_out() {
    let engine = simulator(Config::default());
    let body = json!({"input_ids": [1, 5, 6, 7], "return_logprob": true, "rid": "a",
        "sampling_params": {"max_new_tokens": 6, "ignore_eos": true}});
    let reply = post(&engine, "/generate", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let answer = reply.json();
    let ids = answer["output_ids"].as_array().unwrap();
    assert_eq!(ids.len(), 6);
    let triples = answer["meta_info"]["output_token_logprobs"]
        .as_array()
        .unwrap();
    assert_eq!(
        triples.iter().map(|triple| &triple[1]).collect::<Vec<_>>(),
        ids.iter().collect::<Vec<_>>()
    );
    assert!(
        triples
            .iter()
            .all(|triple| triple[0].as_f64().unwrap() < 0.0)
    );
    assert_eq!(answer["meta_info"]["id"], "a");
    assert_eq!(answer["meta_info"]["prompt_tokens"], 4);
    assert_eq!(answer["meta_info"]["completion_tokens"], 6);
    assert_eq!(engine.state().in_flight, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_chat_gives_ids_and_meta_info() {
    let engine = simulator(Config::default());
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "ignore_eos": true,
        "logprobs": true, "return_prompt_token_ids": true, "return_meta_info": true});
    let reply = post(&engine, "/v1/chat/completions", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let choice = &reply.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(
        choice["meta_info"]["output_token_logprobs"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    assert!(choice["prompt_token_ids"].as_array().unwrap().len() > 5);
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_a_request_with_what_it_has() {
    let engine = simulator(Config::default());
    let body = json!({"input_ids": [1, 5, 6], "rid": "gone", "sampling_params": {"max_new_tokens": 3000, "ignore_eos": true}});
    let (reply, ()) = tokio::join!(post(&engine, "/generate", body), async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(engine.state().in_flight, ["gone"]);
        post(&engine, "/abort_request", json!({"rid": "gone"})).await;
    });
    let meta = &reply.json()["meta_info"];
    assert_eq!(meta["finish_reason"]["type"], "abort");
    let tokens = meta["completion_tokens"].as_u64().unwrap();
    assert!(
        (168..=172).contains(&tokens),
        "a second at 170 tokens per second gave {tokens}"
    );
    assert_eq!(engine.state().aborted_rids, ["gone"]);
}

#[tokio::test(start_paused = true)]
async fn it_is_healthy_and_says_what_it_is() {
    let engine = simulator(Config::default());
    for path in [
        "/health",
        "/health_generate",
        "/ready",
        "/ping",
        "/server_info",
        "/model_info",
        "/v1/models",
        "/v1/loads",
        "/metrics",
    ] {
        assert_eq!(get(&engine, path).await.status, 200, "{path}");
    }
    assert_eq!(
        get(&engine, "/server_info").await.json()["version"],
        "0.5.23"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_repeats_everything_so_far() {
    let engine = simulator(Config::default());
    let body = json!({"input_ids": [1, 5, 6, 7], "stream": true, "sampling_params": {"max_new_tokens": 20, "ignore_eos": true}});
    let events = post(&engine, "/generate", body).await.events();
    assert!(events.len() > 5, "{} events", events.len());
    for pair in events.windows(2) {
        let (before, after) = (
            pair[0]["output_ids"].as_array().unwrap(),
            pair[1]["output_ids"].as_array().unwrap(),
        );
        assert!(after.starts_with(before) && after.len() > before.len());
    }
    assert_eq!(
        events.last().unwrap()["meta_info"]["finish_reason"]["type"],
        "length"
    );
}
