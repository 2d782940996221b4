//! Replies as SGLang 0.5.23 sends them.

use serde_json::{Value, json};
use sglang_client::{
    ErrorBody, FinishReason, GenerateReply, GenerateRequest, Prompt, ReplyProblem,
};

fn reply(meta: &Value) -> GenerateReply {
    serde_json::from_value(json!({ "text": "abc", "meta_info": meta })).unwrap()
}

#[test]
fn ids_and_log_probs_come_from_the_triples_bit_exact() {
    let raw = r#"{"text": "ab", "output_ids": [7, 415], "meta_info": {
        "id": "r", "finish_reason": {"type": "length", "length": 2}, "prompt_tokens": 4, "weight_version": "default",
        "output_token_logprobs": [[-0.0, 7, null], [-1.7976931348623157e308, 415, "b"]], "completion_tokens": 2, "cached_tokens": 3}}"#;
    let reply: GenerateReply = serde_json::from_str(raw).unwrap();
    let output = reply.output().unwrap();
    assert_eq!(output.ids, [7, 415]);
    assert_eq!(output.log_probs[0].to_bits(), (-0.0f64).to_bits());
    assert_eq!(output.log_probs[1].to_bits(), f64::MIN.to_bits());
    assert_eq!(reply.meta_info.finish_reason, Some(FinishReason::Length));
    assert_eq!(
        reply.meta_info.weight_version_text().as_deref(),
        Some("default")
    );
}

#[test]
fn a_request_aborted_in_the_queue_has_no_output_and_that_is_fine() {
    let reply = reply(&json!({
        "id": "queued", "finish_reason": {"type": "abort", "message": "Abort in waiting queue"},
        "weight_version": "default", "e2e_latency": 0.4, "completion_tokens": 0
    }));
    assert_eq!(reply.output().unwrap().ids.len(), 0);
    assert!(matches!(
        reply.meta_info.finish_reason,
        Some(FinishReason::Abort { .. })
    ));
}

#[test]
fn a_reply_without_ids_or_with_wrong_counts_is_an_error() {
    let stop = json!({"type": "stop", "matched": 3});
    assert_eq!(
        reply(&json!({"finish_reason": stop, "completion_tokens": 5})).output(),
        Err(ReplyProblem::NoIds { tokens: 5 })
    );
    assert_eq!(
        reply(&json!({"finish_reason": stop})).output(),
        Err(ReplyProblem::NoIds { tokens: 1 }),
        "there is text, so there were tokens"
    );
    assert_eq!(
        reply(&json!({"finish_reason": stop, "completion_tokens": 5, "output_token_logprobs": [[-1.0, 3, null]]}))
            .output(),
        Err(ReplyProblem::Counts {
            ids: 1,
            name: "completion_tokens",
            count: 5
        })
    );
    assert_eq!(
        reply(&json!({"completion_tokens": 0})).output(),
        Err(ReplyProblem::NoFinishReason)
    );
    let other_ids: GenerateReply = serde_json::from_value(json!({
        "text": "a", "output_ids": [4],
        "meta_info": {"finish_reason": stop, "output_token_logprobs": [[-1.0, 3, null]]}
    }))
    .unwrap();
    assert_eq!(other_ids.output(), Err(ReplyProblem::Ids));
}

#[test]
fn a_generated_token_without_a_log_prob_does_not_parse() {
    let raw = r#"{"text": "a", "meta_info": {"output_token_logprobs": [[null, 3, null]]}}"#;
    let error = serde_json::from_str::<GenerateReply>(raw).unwrap_err();
    assert!(error.to_string().contains("without a logprob"), "{error}");
}

#[test]
fn newer_finish_reasons_and_unknown_fields_are_let_through() {
    let reply = reply(&json!({
        "finish_reason": {"type": "watermark", "x": 1}, "weight_version": 3, "novel": [1],
        "output_token_logprobs": []
    }));
    assert_eq!(reply.meta_info.finish_reason, Some(FinishReason::Other));
    assert_eq!(reply.meta_info.weight_version_text().as_deref(), Some("3"));
}

#[test]
fn the_request_has_the_keys_of_miles_and_a_rid() {
    let mut request = GenerateRequest {
        prompt: Prompt::Ids(vec![1, 2]),
        rid: "r".into(),
        sampling_params: json!({"temperature": 1.0}).as_object().unwrap().clone(),
        return_logprob: true,
        return_routed_experts: false,
        return_indexer_topk: false,
        return_prompt_token_ids: false,
    };
    assert_eq!(
        serde_json::to_value(&request).unwrap(),
        json!({"input_ids": [1, 2], "rid": "r", "sampling_params": {"temperature": 1.0}, "return_logprob": true,
               "return_routed_experts": false, "return_indexer_topk": false})
    );
    request.prompt = Prompt::Text("hi".into());
    request.return_prompt_token_ids = true;
    let body = serde_json::to_value(&request).unwrap();
    assert_eq!(body["text"], "hi");
    assert_eq!(body["return_prompt_token_ids"], true);
    assert!(body.get("input_ids").is_none());
    assert!(body.get("logprob_start_len").is_none());
}

#[test]
fn all_shapes_of_error_bodies_are_read() {
    let cases = [
        (
            r#"{"error":{"message":"Either text, input_ids or input_embeds should be provided."}}"#,
            "Either text, input_ids or input_embeds should be provided.",
        ),
        (
            r#"{"object":"error","message":"queue full","type":"503","param":null,"code":503}"#,
            "queue full",
        ),
        (r#"{"error":"unknown field `foo`"}"#, "unknown field `foo`"),
        (
            r#"{"object":"error","message":"1 validation error","type":"Bad Request","param":null,"code":400}"#,
            "1 validation error",
        ),
        (r#"{"error":"Unauthorized"}"#, "Unauthorized"),
        (r#"{"detail":"Not Found"}"#, "Not Found"),
        ("upstream connect error", "upstream connect error"),
        (r#"{"novel": 1}"#, r#"{"novel": 1}"#),
    ];
    for (body, message) in cases {
        assert_eq!(ErrorBody::parse(body.as_bytes()).message, message);
    }
    let closed = ErrorBody::parse(
        br#"{"error":{"message":"rollout closed: target","type":"rollout_closed","code":"rollout_closed"}}"#,
    );
    assert_eq!(closed.code.as_deref(), Some("rollout_closed"));
    let long = format!("{{\"error\": \"{}\"}}", "\u{e4}".repeat(5000));
    assert!(ErrorBody::parse(long.as_bytes()).message.len() <= 2048);
}
