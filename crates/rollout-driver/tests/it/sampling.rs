//! Sampling parameters and budgets.

use rollout_driver::config::Sampling;
use rollout_driver::generate::{
    Budget, CHAT_FIELDS, chat_request_kwargs, remaining, sampling_params,
};
use serde_json::{Map, Value, json};

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn an_agent_gets_exactly_the_mapped_key_set() {
    let sampling = Sampling {
        max_new_tokens: Some(2048),
        min_new_tokens: Some(1),
        sampling_seed: Some(42),
        stop: vec!["</s>".into()],
        stop_token_ids: vec![2],
        ..Sampling::default()
    };
    let kwargs = chat_request_kwargs(&sampling_params(&sampling, 3));
    assert_eq!(
        Value::Object(kwargs),
        json!({
            "temperature": 1.0, "top_p": 1.0, "top_k": -1, "stop": ["</s>"], "stop_token_ids": [2],
            "skip_special_tokens": false, "no_stop_trim": true,
            "max_tokens": 2048, "min_tokens": 1, "seed": 45,
        })
    );
}

#[test]
fn generate_gets_the_names_of_miles_with_its_defaults() {
    let params = sampling_params(&Sampling::default(), 0);
    assert_eq!(
        Value::Object(params),
        json!({
            "temperature": 1.0, "top_p": 1.0, "top_k": -1, "skip_special_tokens": false, "no_stop_trim": true,
            "spaces_between_special_tokens": false,
        })
    );
}

#[test]
fn extras_of_sglang_survive_and_what_is_no_field_does_not() {
    let kwargs = chat_request_kwargs(&map(&json!({
        "repetition_penalty": 1.1, "chat_template_kwargs": {"enable_thinking": false}, "regex": "a+",
        "spaces_between_special_tokens": false, "novel": 1,
    })));
    let keys: Vec<&str> = kwargs.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["repetition_penalty", "chat_template_kwargs", "regex"]
    );
}

#[test]
fn model_messages_and_nulls_never_pass() {
    let kwargs = chat_request_kwargs(&map(&json!({
        "model": "m", "messages": [], "temperature": null, "max_new_tokens": null, "top_p": 0.9,
    })));
    assert_eq!(Value::Object(kwargs), json!({"top_p": 0.9}));
}

#[test]
fn a_destination_that_is_there_wins_and_the_source_always_goes() {
    let kwargs = chat_request_kwargs(&map(&json!({"max_new_tokens": 1, "max_tokens": 2})));
    assert_eq!(Value::Object(kwargs), json!({"max_tokens": 2}));
}

#[test]
fn the_list_of_fields_is_sorted_and_without_the_agents_own() {
    assert!(CHAT_FIELDS.is_sorted());
    assert!(!CHAT_FIELDS.contains(&"model") && !CHAT_FIELDS.contains(&"messages"));
}

#[test]
fn budgets_are_counted_as_miles_counts_them() {
    let cases = [
        // max_new_tokens, context, prompt plus generated, generated
        ((None, None, Some(10), 0), Budget::Unlimited),
        ((Some(100), None, None, 0), Budget::Tokens(100)),
        ((Some(100), Some(64), Some(10), 0), Budget::Tokens(54)),
        ((Some(100), Some(640), Some(50), 40), Budget::Tokens(60)),
        ((Some(100), None, Some(110), 100), Budget::Spent),
        ((Some(100), None, Some(120), 110), Budget::Spent),
        ((None, Some(64), Some(64), 0), Budget::Spent),
        ((None, Some(64), None, 0), Budget::Unlimited),
    ];
    for ((new, context, input, generated), budget) in cases {
        assert_eq!(remaining(new, context, input, generated), budget);
    }
}
