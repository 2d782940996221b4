//! Replies of both profiles, and replies that lie.

use rollout_session::{
    ChatReply, FinishReason, Forest, GenerateReply, Generation, KnownPrompt, ReplyError,
    SampleStatus, TurnContext,
};
use serde_json::{Value, json};

/// A reply of stock SGLang 0.5.23, as it answers `logprobs`, `return_prompt_token_ids` and `return_meta_info`.
fn stock() -> Value {
    json!({
        "id": "02108c", "object": "chat.completion", "created": 1_796_018_992, "model": "tiny",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": "hi", "reasoning_content": null},
            "logprobs": {"content": [
                {"token": "h", "bytes": [104], "logprob": -5.036_105_632_781_982, "top_logprobs": []},
                {"token": "i", "bytes": [105], "logprob": -0.25, "top_logprobs": []},
            ]},
            "finish_reason": "stop", "matched_stop": 2,
            "prompt_token_ids": [1, 344, 201],
            "meta_info": {
                "id": "02108c", "finish_reason": {"type": "stop", "matched": 2}, "prompt_tokens": 3, "weight_version": "default",
                "input_token_logprobs": [],
                "output_token_logprobs": [[-5.036_105_632_781_982, 72, "h"], [-0.25, 73, "i"]],
                "output_token_logprobs_length": 2, "completion_tokens": 2, "cached_tokens": 1, "e2e_latency": 0.5,
            },
        }],
        "usage": {"prompt_tokens": 3, "total_tokens": 5, "completion_tokens": 2},
        "metadata": {"weight_version": "default"},
    })
}

/// A reply of Miles's fork, which names ids in `logprobs.content`.
fn fork() -> Value {
    let mut reply = stock();
    let choice = reply["choices"][0].as_object_mut().unwrap();
    choice.remove("meta_info");
    choice["logprobs"]["content"][0]["token_id"] = json!(72);
    choice["logprobs"]["content"][1]["token_id"] = json!(73);
    reply
}

fn parse(reply: &Value) -> Result<Generation, ReplyError> {
    Ok(ChatReply::parse(reply.to_string().as_bytes(), None, None)?.generation)
}

fn edited(edit: impl FnOnce(&mut Value)) -> Value {
    let mut reply = stock();
    edit(&mut reply);
    reply
}

#[test]
fn both_profiles_give_the_same_turn() {
    let stock = parse(&stock()).unwrap();
    assert_eq!(stock.prompt_ids, [1, 344, 201]);
    assert_eq!(stock.output_ids, [72, 73]);
    assert_eq!(stock.log_probs, [-5.036_105_632_781_982, -0.25]);
    assert_eq!(stock.pieces.as_ref().unwrap().first(2), "hi");
    assert_eq!(stock.finish, Some(FinishReason::Stop));
    assert_eq!(stock.weight_version.as_deref(), Some("default"));
    assert_eq!(stock.cached_tokens, 1);
    assert_eq!(stock.engine_seconds, Some(0.5));
    let fork = parse(&fork()).unwrap();
    assert_eq!(fork.prompt_ids, stock.prompt_ids);
    assert_eq!(fork.output_ids, stock.output_ids);
    assert_eq!(fork.log_probs, stock.log_probs);
    assert_eq!(fork.weight_version, stock.weight_version);
}

#[test]
fn a_known_prompt_is_taken_over_only_where_the_reply_begins_with_it() {
    let body = stock().to_string();
    for (text, ids, used) in [
        ("1,344", vec![7, 8], true),
        ("1,344,201", vec![7, 8, 9], true),
        ("1,34", vec![7, 8], false),
        ("1,345", vec![7, 8], false),
        ("1,344,201,5", vec![7, 8, 9, 5], false),
    ] {
        let known = KnownPrompt {
            text: text.into(),
            ids: ids.clone(),
        };
        let reply = ChatReply::parse(body.as_bytes(), None, Some(known));
        let expected = match (used, ids.len()) {
            (true, 2) => vec![7, 8, 201],
            (true, _) => ids,
            (false, _) => vec![1, 344, 201],
        };
        // Ids that are no part of the text show that they were taken over.
        assert_eq!(reply.unwrap().generation.prompt_ids, expected, "{text}");
    }
    let reply = ChatReply::parse(body.as_bytes(), None, None).unwrap();
    assert_eq!(reply.prompt_text(body.as_bytes()), Some("1,344,201"));
}

#[test]
fn the_text_of_the_last_prompt_is_known_until_the_session_closes() {
    let body = stock().to_string();
    let reply = ChatReply::parse(body.as_bytes(), None, None).unwrap();
    let context = TurnContext {
        prompt_text: reply.prompt_text(body.as_bytes()),
        ..TurnContext::default()
    };
    let mut forest = Forest::new(0);
    assert!(forest.known_prompt().is_none());
    forest.commit(0, reply.generation.clone(), context).unwrap();
    let known = forest.known_prompt().unwrap();
    assert_eq!(&*known.text, "1,344,201");
    assert_eq!(known.ids, [1, 344, 201]);
    let bytes = forest.heap_bytes();
    forest.close();
    assert!(forest.known_prompt().is_none());
    assert_eq!(forest.heap_bytes(), bytes - "1,344,201".len());
}

#[test]
fn response_token_ids_serve_when_the_others_are_missing() {
    let reply = edited(|reply| {
        let choice = reply["choices"][0].as_object_mut().unwrap();
        choice.remove("meta_info");
        choice.insert("response_token_ids".to_owned(), json!([72, 73]));
    });
    assert_eq!(parse(&reply).unwrap().output_ids, [72, 73]);
}

#[test]
fn places_that_disagree_are_refused() {
    let reply = edited(|reply| reply["choices"][0]["response_token_ids"] = json!([72, 74]));
    assert_eq!(
        parse(&reply).unwrap_err().to_string(),
        "meta_info.output_token_logprobs and response_token_ids disagree"
    );
    let body = stock().to_string();
    let error = ChatReply::parse(body.as_bytes(), Some(&[1, 344]), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "input_ids of the request and prompt_token_ids disagree"
    );
}

#[test]
fn replies_that_lie_are_refused_with_the_reason() {
    let no_rows = edited(|reply| {
        let choice = reply["choices"][0].as_object_mut().unwrap();
        choice.remove("meta_info");
        choice.remove("logprobs");
    });
    let no_ids = edited(|reply| {
        reply["choices"][0]
            .as_object_mut()
            .unwrap()
            .remove("meta_info");
    });
    let cases: Vec<(Value, &str)> = vec![
        (
            no_rows,
            "meta_info and output_token_logprobs must be in choice (requires logprobs=True)",
        ),
        (no_ids, "no output token ids"),
        (
            edited(|it| it["choices"] = json!([])),
            "engine reply has no choices",
        ),
        (
            edited(|it| {
                it.as_object_mut().unwrap().remove("choices");
            }),
            "engine reply has no choices",
        ),
        (
            edited(|it| {
                let choice = it["choices"][0].clone();
                it["choices"].as_array_mut().unwrap().push(choice);
            }),
            "engine reply has 2 choices, expected 1",
        ),
        (
            edited(|it| it["choices"][0]["message"]["content"] = Value::Null),
            "assistant message content is None",
        ),
        (
            edited(|it| it["choices"][0]["meta_info"]["completion_tokens"] = json!(3)),
            "len(output_token_logprobs)=2 != completion_tokens=3",
        ),
        (
            edited(|it| it["choices"][0]["meta_info"]["prompt_tokens"] = json!(4)),
            "len(prompt_token_ids)=3 != prompt_tokens=4",
        ),
        (
            edited(|it| {
                it["choices"][0]
                    .as_object_mut()
                    .unwrap()
                    .remove("prompt_token_ids");
            }),
            "no prompt token ids",
        ),
        (
            edited(|it| it["choices"][0]["meta_info"]["output_token_logprobs"][1][0] = Value::Null),
            "the log-probability of output token 1 is null",
        ),
        (
            edited(|it| it["choices"][0]["meta_info"]["output_token_logprobs"][1][1] = json!(-3)),
            "expected a token id",
        ),
        (
            edited(|it| it["choices"][0]["meta_info"]["output_token_logprobs"][1][1] = json!("x")),
            "expected a token id",
        ),
        (
            edited(|it| it["choices"][0]["prompt_token_ids"] = json!([1, 2.5])),
            "expected a token id",
        ),
    ];
    for (reply, expected) in cases {
        let error = parse(&reply).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} is not {expected}");
    }
}

#[test]
fn bodies_that_are_no_json_are_refused() {
    for body in [
        "",
        "null",
        "[]",
        "<html>",
        "{\"choices\":",
        "{\"choices\":[{]}",
        "{\"choices\":[{\"logprobs\":NaN}]}",
    ] {
        assert!(
            ChatReply::parse(body.as_bytes(), None, None).is_err(),
            "{body}"
        );
        assert!(
            GenerateReply::parse(body.as_bytes(), None).is_err(),
            "{body}"
        );
    }
    assert!(ChatReply::parse(b"{\"choices\": \"\xff\"}", None, None).is_err());
    let whole = stock().to_string();
    for end in (0..whole.len()).filter(|end| whole.is_char_boundary(*end)) {
        assert!(ChatReply::parse(&whole.as_bytes()[..end], None, None).is_err());
    }
}

#[test]
fn an_infinite_log_probability_is_refused() {
    let body = stock().to_string().replace("-0.25,73", "-1e999,73");
    let error = ChatReply::parse(body.as_bytes(), None, None).unwrap_err();
    assert!(error.to_string().contains("finite"), "{error}");
}

#[test]
fn a_message_with_tool_calls_needs_no_content() {
    let reply = edited(|reply| {
        reply["choices"][0]["message"] =
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c"}]});
        reply["choices"][0]["finish_reason"] = json!("tool_calls");
    });
    assert_eq!(parse(&reply).unwrap().status(), SampleStatus::Completed);
}

#[test]
fn finish_reasons_have_their_status() {
    for (reason, status) in [
        ("stop", SampleStatus::Completed),
        ("tool_calls", SampleStatus::Completed),
        ("length", SampleStatus::Truncated),
        ("abort", SampleStatus::Aborted),
        ("content_filter", SampleStatus::Aborted),
    ] {
        let reply = edited(|reply| reply["choices"][0]["finish_reason"] = json!(reason));
        assert_eq!(parse(&reply).unwrap().status(), status, "{reason}");
    }
}

#[test]
fn replay_payloads_stay_out_of_the_clients_reply_and_nothing_else_changes() {
    let plain = stock().to_string();
    let parsed = ChatReply::parse(plain.as_bytes(), None, None).unwrap();
    assert_eq!(parsed.client_body(plain.as_bytes()), None);
    let with_payload = edited(|reply| {
        reply["choices"][0]["meta_info"]["routed_experts"] = json!("AAAA");
        reply["choices"][0]["meta_info"]["indexer_topk"] = json!("BBBB");
        reply["sglext"] = json!({"routed_experts": "CCCC"});
    })
    .to_string();
    let parsed = ChatReply::parse(with_payload.as_bytes(), None, None).unwrap();
    let client = parsed.client_body(with_payload.as_bytes()).unwrap();
    let mut expected = stock();
    expected["sglext"] = json!({});
    assert_eq!(String::from_utf8(client).unwrap(), expected.to_string());
}

#[test]
fn the_record_has_no_list_that_is_stored_in_binary_form() {
    let body = stock().to_string();
    let parsed = ChatReply::parse(body.as_bytes(), None, None).unwrap();
    let record: Value = serde_json::from_slice(&parsed.record_body(body.as_bytes())).unwrap();
    let choice = record["choices"][0].as_object().unwrap();
    assert!(!choice.contains_key("prompt_token_ids"));
    assert!(!choice.contains_key("logprobs"));
    assert!(choice["meta_info"].get("output_token_logprobs").is_none());
    assert_eq!(choice["message"]["content"], "hi");
    assert_eq!(choice["meta_info"]["completion_tokens"], 2);
    assert_eq!(record["usage"]["prompt_tokens"], 3);
}

#[test]
fn generate_replies_are_read() {
    let reply = json!({
        "text": "hi", "output_ids": [72, 73],
        "meta_info": {
            "id": "r", "finish_reason": {"type": "length", "length": 2}, "prompt_tokens": 2, "weight_version": "7",
            "output_token_logprobs": [[-0.5, 72, null], [-0.25, 73, null]], "completion_tokens": 2, "cached_tokens": 0,
        },
    });
    let body = reply.to_string();
    let generation = GenerateReply::parse(body.as_bytes(), Some(&[1, 2]))
        .unwrap()
        .generation;
    assert_eq!(generation.prompt_ids, [1, 2]);
    assert_eq!(generation.output_ids, [72, 73]);
    assert_eq!(generation.pieces, None);
    assert_eq!(generation.status(), SampleStatus::Truncated);
    let error = GenerateReply::parse(body.as_bytes(), None).unwrap_err();
    assert_eq!(error.to_string(), ReplyError::NoPromptIds.to_string());
    let lying = body.replace("\"output_ids\":[72,73]", "\"output_ids\":[72,99]");
    assert!(GenerateReply::parse(lying.as_bytes(), Some(&[1, 2])).is_err());
}
