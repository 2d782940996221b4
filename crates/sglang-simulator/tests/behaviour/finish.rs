//! Why a generation ends, and what is left of its last token.

use serde_json::{Value, json};

use crate::engine::{Engine, ids_of, same};

/// A request that says one token over and over.
async fn saying(engine: &Engine, token: u32, sampling: &Value) -> Value {
    let mut sampling = sampling.clone();
    sampling["logit_bias"] = json!({token.to_string(): 100});
    engine
        .generate(&json!({"input_ids": engine.ids("Say it:"), "return_logprob": true, "sampling_params": sampling}))
        .await
}

fn id(engine: &Engine, token: &str) -> u32 {
    let ids = engine.ids(token);
    assert_eq!(ids.len(), 1, "{token:?} is not one token");
    ids[0]
}

pub(crate) async fn at_the_length(engine: &Engine) {
    let answer = saying(engine, id(engine, " answer"), &json!({"max_new_tokens": 4})).await;
    same(
        &answer["text"],
        &json!(" answer answer answer answer"),
        &answer,
    );
    same(
        &answer["meta_info"]["finish_reason"],
        &json!({"type": "length", "length": 4}),
        &answer,
    );
}

pub(crate) async fn at_the_end_token(engine: &Engine) {
    for token in ["<|im_end|>", "<|endoftext|>"] {
        let end = id(engine, token);
        let answer = saying(engine, end, &json!({"max_new_tokens": 50})).await;
        same(
            &answer["meta_info"]["finish_reason"],
            &json!({"type": "stop", "matched": end}),
            &answer,
        );
        same(&ids_of(&answer["output_ids"]), &vec![end], &answer);
        same(&answer["text"], &json!(""), &answer);
        same(
            &answer["meta_info"]["completion_tokens"],
            &json!(1),
            &answer,
        );
        same(
            &answer["meta_info"]["output_token_logprobs_length"],
            &json!(1),
            &answer,
        );
    }
}

pub(crate) async fn at_the_end_token_untrimmed(engine: &Engine) {
    let end = id(engine, "<|im_end|>");
    let sampling =
        json!({"max_new_tokens": 50, "no_stop_trim": true, "skip_special_tokens": false});
    let answer = saying(engine, end, &sampling).await;
    same(&answer["text"], &json!("<|im_end|>"), &answer);
    same(&ids_of(&answer["output_ids"]), &vec![end], &answer);
}

pub(crate) async fn past_the_end_token_on_request(engine: &Engine) {
    let end = id(engine, "<|im_end|>");
    let answer = saying(
        engine,
        end,
        &json!({"max_new_tokens": 3, "ignore_eos": true}),
    )
    .await;
    same(
        &answer["meta_info"]["finish_reason"],
        &json!({"type": "length", "length": 3}),
        &answer,
    );
    same(&ids_of(&answer["output_ids"]), &vec![end; 3], &answer);
    same(&answer["text"], &json!(""), &answer);
}

pub(crate) async fn at_a_stop_token(engine: &Engine) {
    let stop = id(engine, " answer");
    let answer = saying(
        engine,
        stop,
        &json!({"max_new_tokens": 50, "stop_token_ids": [7, stop]}),
    )
    .await;
    same(
        &answer["meta_info"]["finish_reason"],
        &json!({"type": "stop", "matched": stop}),
        &answer,
    );
    same(&ids_of(&answer["output_ids"]), &vec![stop], &answer);
    same(&answer["text"], &json!(""), &answer);
}

pub(crate) async fn at_a_stop_string(engine: &Engine) {
    let token = id(engine, " answer");
    let sampling = json!({"max_new_tokens": 50, "stop": ["never", "wer ans"]});
    let answer = saying(engine, token, &sampling).await;
    same(
        &answer["meta_info"]["finish_reason"],
        &json!({"type": "stop", "matched": "wer ans"}),
        &answer,
    );
    same(&ids_of(&answer["output_ids"]), &vec![token; 2], &answer);
    same(&answer["text"], &json!(" ans"), &answer);
    same(
        &answer["meta_info"]["output_token_logprobs_length"],
        &json!(2),
        &answer,
    );
}

pub(crate) async fn at_a_stop_string_untrimmed(engine: &Engine) {
    let token = id(engine, " answer");
    let sampling = json!({"max_new_tokens": 50, "stop": "wer ans", "no_stop_trim": true});
    let answer = saying(engine, token, &sampling).await;
    // What came after the stop string in its last token is gone all the same.
    same(&answer["text"], &json!(" answer ans"), &answer);
    same(&ids_of(&answer["output_ids"]), &vec![token; 2], &answer);
}

pub(crate) async fn at_a_stop_expression(engine: &Engine) {
    let token = id(engine, " answer");
    let answer = saying(
        engine,
        token,
        &json!({"max_new_tokens": 20, "stop_regex": "[dr] a.s"}),
    )
    .await;
    // What matched is said to be the expression, which is not in the text, so that nothing is trimmed.
    same(
        &answer["meta_info"]["finish_reason"],
        &json!({"type": "stop", "matched": "[dr] a.s"}),
        &answer,
    );
    same(&ids_of(&answer["output_ids"]), &vec![token; 2], &answer);
    same(&answer["text"], &json!(" answer answer"), &answer);
}

pub(crate) async fn not_before_the_least_length(engine: &Engine) {
    let end = id(engine, "<|im_end|>");
    let answer = saying(
        engine,
        end,
        &json!({"max_new_tokens": 50, "min_new_tokens": 4}),
    )
    .await;
    let ids = ids_of(&answer["output_ids"]);
    same(&ids.len(), &5, &answer);
    same(&ids.iter().position(|id| *id == end), &Some(4), &answer);
}

pub(crate) async fn within_a_schema(engine: &Engine) {
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false});
    let answer = engine
        .generate(&json!({
            "input_ids": engine.ids("Say it:"),
            "sampling_params": {"max_new_tokens": 300, "temperature": 1, "json_schema": schema.to_string()},
        }))
        .await;
    let text = answer["text"].as_str().unwrap();
    assert!(text.starts_with('{'), "{answer}");
    // The real one has random weights, and white space is allowed without end.
    if answer["meta_info"]["finish_reason"]["type"] == "stop" {
        let value: Value = serde_json::from_str(text).unwrap();
        assert!(value["a"].is_boolean(), "{answer}");
    }
}

pub(crate) async fn a_chat_names_its_stop(engine: &Engine) {
    let messages = json!([{"role": "user", "content": "Say it."}]);
    let (token, end) = (id(engine, " answer"), id(engine, "<|im_end|>"));
    let choice = async |token: u32, more: Value| {
        let mut body = json!({"model": "tiny", "messages": messages, "max_tokens": 3, "logit_bias": {token.to_string(): 100}});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        let answer = engine.chat(&body).await;
        let choice = &answer["choices"][0];
        json!([
            choice["message"]["content"],
            choice["finish_reason"],
            choice["matched_stop"]
        ])
    };
    assert_eq!(choice(end, json!({})).await, json!(["", "stop", end]));
    assert_eq!(
        choice(token, json!({})).await,
        json!([" answer answer answer", "length", null])
    );
    assert_eq!(
        choice(token, json!({"stop": "swer a"})).await,
        json!([" an", "stop", "swer a"])
    );
    assert_eq!(
        choice(token, json!({"stop_token_ids": [token]})).await,
        json!(["", "stop", token])
    );
    let untrimmed = json!({"no_stop_trim": true, "skip_special_tokens": false});
    assert_eq!(
        choice(end, untrimmed).await,
        json!(["<|im_end|>", "stop", end])
    );
}
