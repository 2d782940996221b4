//! Sampling parameters, as a client sees what they do.

use regex::Regex;
use serde_json::{Value, json};
use sglang_simulator::{Config, Simulator};

use crate::support::{post, simulator};

fn engine() -> Simulator {
    simulator(Config {
        time_scale: 100,
        ..Config::default()
    })
}

async fn generate(engine: &Simulator, mut params: Value) -> Value {
    params["max_new_tokens"] = params.get("max_new_tokens").cloned().unwrap_or(json!(200));
    let body = json!({"text": "once upon a time", "return_logprob": true, "top_logprobs_num": 1, "sampling_params": params});
    let reply = post(engine, "/generate", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

fn ids(answer: &Value) -> Vec<u64> {
    let ids = answer["output_ids"].as_array().unwrap();
    ids.iter().map(|id| id.as_u64().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn narrow_cuts_are_greedy() {
    let engine = engine();
    for cut in [
        json!({"top_k": 1}),
        json!({"top_p": 1e-9}),
        json!({"min_p": 1.0}),
    ] {
        let mut params = cut.clone();
        params["ignore_eos"] = json!(true);
        let answer = generate(&engine, params).await;
        for (said, top) in ids(&answer).iter().zip(
            answer["meta_info"]["output_top_logprobs"]
                .as_array()
                .unwrap(),
        ) {
            assert_eq!(top[0][1], *said, "{cut}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn penalties_make_outputs_varied() {
    let engine = engine();
    let mut counts = Vec::new();
    for penalty in [-2.0, 0.0, 2.0] {
        let params = json!({"frequency_penalty": penalty, "sampling_seed": 3, "ignore_eos": true});
        let mut said = ids(&generate(&engine, params).await);
        said.sort_unstable();
        said.dedup();
        counts.push(said.len());
    }
    assert!(counts[0] < counts[1] && counts[1] < counts[2], "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn grammars_are_kept_in_every_route() {
    let engine = engine();
    let pattern = "(yes|no), [0-9]{2}";
    let whole = Regex::new(&format!("^{pattern}$")).unwrap();
    let native = generate(&engine, json!({"regex": pattern})).await;
    assert!(whole.is_match(native["text"].as_str().unwrap()), "{native}");
    let chat = json!({"messages": [{"role": "user", "content": "so?"}], "ebnf": "root ::= \"yes\" | \"no\""});
    let chat = post(&engine, "/v1/chat/completions", chat).await.json();
    let said = chat["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(["yes", "no"].contains(&said), "{chat}");
    let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer", "minimum": 5, "maximum": 6}}});
    let body = json!({"prompt": "so?", "max_tokens": 9, "response_format": format});
    let completion = post(&engine, "/v1/completions", body).await.json();
    let said = completion["choices"][0]["text"].as_str().unwrap();
    assert!(["5", "6"].contains(&said), "{completion}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_compiled_is_refused() {
    let engine = engine();
    for (params, message) in [
        (
            json!({"regex": "["}),
            "Failed to compile regex grammar: unclosed character class",
        ),
        (
            json!({"ebnf": "root ::= a"}),
            "Failed to compile ebnf grammar: rule a is not defined",
        ),
        (
            json!({"json_schema": "{\"not\": {}}"}),
            "Failed to compile json grammar: JSON Schema at # is not supported by xgrammar: keyword(s) not would be ignored",
        ),
    ] {
        let body = json!({"text": "a", "sampling_params": params});
        let reply = post(&engine, "/generate", body).await;
        assert_eq!(
            (reply.status, reply.json()),
            (400, json!({"error": {"message": message}}))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_token_breaks_off_what_was_meant() {
    let script = sglang_simulator::Script {
        inline: Some("- reply: {content: yes indeed}".into()),
        ..Default::default()
    };
    let mut config = Config {
        time_scale: 100,
        ..Config::default()
    };
    config.replies.script = Some(script);
    let engine = simulator(config);
    let meant = ids(&generate(&engine, json!({})).await);
    let forbidden = meant[1];
    let mut params = json!({"ignore_eos": true});
    params["logit_bias"] = json!({forbidden.to_string(): -100});
    let said = ids(&generate(&engine, params).await);
    assert_eq!(said[0], meant[0]);
    assert!(!said.contains(&forbidden));
}
