//! `/v1/chat/completions` and `/v1/completions`: prompts, ids, log-probabilities, usage.

use rollout_tokenizer::{ChatTemplateInput, sglang_tools};
use serde_json::{Map, Value, json};

use crate::engine::{Engine, ids_of, same, triples};

fn hello() -> Value {
    json!([{"role": "user", "content": "Hello!"}])
}

/// Renders and tokenizes with this project's own crate; what the engine does is to be the same.
fn prompt_ids(engine: &Engine, body: &Value) -> Vec<u32> {
    let kwargs = body["chat_template_kwargs"]
        .as_object()
        .cloned()
        .unwrap_or_else(Map::new);
    let tools = sglang_tools(body.get("tools")).unwrap();
    let text = engine.tokenizer.apply_chat_template(&ChatTemplateInput {
        messages: &body["messages"],
        tools: tools.as_ref(),
        add_generation_prompt: true,
        kwargs: &kwargs,
    });
    engine.ids(&text.unwrap())
}

pub(crate) async fn prompts_are_rendered_and_tokenized_as_here(engine: &Engine) {
    let tools = json!([
        {"type": "function", "function": {"parameters": {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}, "name": "f<>", "description": "é & 'q' \"d\""}},
        {"type": "function", "function": {"name": "calculator", "description": "Computes.", "strict": true, "unknown": 1}},
        {"type": "function", "function": {"name": "g"}},
    ]);
    let call = json!({"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": "{\"z\": 1.0, \"expression\": \"3 + 4\", \"n\": null}"}});
    let conversation = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 3 + 4?\n"},
        {"role": "assistant", "content": null, "tool_calls": [call, call]},
        {"role": "tool", "content": "7", "tool_call_id": "c1"},
        {"role": "tool", "content": [{"type": "text", "text": "seven"}], "tool_call_id": "c1"},
        {"role": "assistant", "content": "<think>\nseven\n</think>\n\nIt is 7."},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "é 😀?"}]},
    ]);
    let reasoned = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "why"},
        {"role": "user", "content": "c"},
    ]);
    for body in [
        json!({"messages": hello()}),
        json!({"messages": conversation}),
        json!({"messages": conversation, "tools": tools}),
        json!({"messages": conversation, "tools": tools, "chat_template_kwargs": {"strip_earlier_reasoning": true}}),
        json!({"messages": conversation, "chat_template_kwargs": {"enable_thinking": false}}),
        json!({"messages": reasoned}),
        json!({"messages": reasoned, "chat_template_kwargs": {"strip_earlier_reasoning": true}}),
        json!({"messages": [{"role": "system", "content": ""}, {"role": "developer", "content": "x"}, {"role": "user", "content": ""}]}),
    ] {
        let mut request = body.clone();
        request["max_tokens"] = json!(1);
        request["return_prompt_token_ids"] = json!(true);
        let answer = engine.chat(&request).await;
        same(
            &ids_of(&answer["choices"][0]["prompt_token_ids"]),
            &prompt_ids(engine, &body),
            &body,
        );
    }
}

pub(crate) async fn ids_and_log_probs_line_up(engine: &Engine) {
    let answer = engine
        .chat(&json!({
            "model": "tiny", "messages": hello(), "max_tokens": 9, "temperature": 1, "ignore_eos": true, "logprobs": true,
            "return_prompt_token_ids": true, "return_token_ids": true, "return_meta_info": true,
        }))
        .await;
    let choice = &answer["choices"][0];
    let ids = ids_of(&choice["response_token_ids"]);
    same(&ids.len(), &9, &answer);
    let meta = &choice["meta_info"];
    let log_probs = triples(&meta["output_token_logprobs"]);
    same(
        &log_probs.iter().map(|(_, id, _)| *id).collect::<Vec<_>>(),
        &ids,
        &answer,
    );
    let content = choice["logprobs"]["content"].as_array().unwrap();
    same(&content.len(), &9, &answer);
    for (entry, (log_prob, _, _)) in content.iter().zip(log_probs) {
        same(&entry["logprob"].as_f64(), &log_prob, &answer);
    }
    same(&meta["completion_tokens"], &json!(9), &answer);
    same(&meta["id"], &answer["id"], &answer);
    same(
        &meta["finish_reason"],
        &json!({"type": "length", "length": 9}),
        &answer,
    );
    same(
        &choice["message"]["content"],
        &json!(engine.tokenizer.decode(&ids, true).unwrap()),
        &answer,
    );
}

pub(crate) async fn log_probs_have_text_and_bytes(engine: &Engine) {
    let answer = engine
        .chat(&json!({
            "model": "tiny", "messages": hello(), "max_tokens": 20, "temperature": 1, "ignore_eos": true,
            "logprobs": true, "top_logprobs": 2, "return_token_ids": true,
        }))
        .await;
    let choice = &answer["choices"][0];
    for (entry, id) in choice["logprobs"]["content"]
        .as_array()
        .unwrap()
        .iter()
        .zip(ids_of(&choice["response_token_ids"]))
    {
        let text = engine.tokenizer.token_text(id).unwrap();
        same(&entry["token"], &json!(text), &answer);
        same(
            &entry["bytes"],
            &json!(engine.tokenizer.token_bytes(id).unwrap()),
            &answer,
        );
        same(
            &entry["top_logprobs"].as_array().map(Vec::len),
            &Some(2),
            &answer,
        );
        assert!(
            entry["logprob"].as_f64().is_some_and(|value| value <= 0.0),
            "{answer}"
        );
    }
}

pub(crate) async fn given_ids_replace_the_prompt(engine: &Engine) {
    let ids = engine.ids("Not what the message says");
    let answer = engine
        .chat(&json!({"model": "tiny", "messages": hello(), "input_ids": ids, "max_tokens": 1, "return_prompt_token_ids": true}))
        .await;
    same(
        &ids_of(&answer["choices"][0]["prompt_token_ids"]),
        &ids,
        &answer,
    );
    same(
        &answer["usage"]["prompt_tokens"],
        &json!(ids.len()),
        &answer,
    );
}

pub(crate) async fn usage_adds_up(engine: &Engine) {
    for limit in ["max_tokens", "max_completion_tokens"] {
        let answer = engine
            .chat(&json!({"model": "tiny", "messages": hello(), limit: 6, "ignore_eos": true}))
            .await;
        let usage = &answer["usage"];
        let prompt = prompt_ids(engine, &json!({"messages": hello()})).len();
        same(&usage["prompt_tokens"], &json!(prompt), &answer);
        same(&usage["completion_tokens"], &json!(6), &answer);
        same(&usage["total_tokens"], &json!(prompt + 6), &answer);
        same(
            &answer["choices"][0]["finish_reason"],
            &json!("length"),
            &answer,
        );
    }
}

pub(crate) async fn the_model_name_is_echoed(engine: &Engine) {
    for model in ["tiny", "a-model-that-is-not-there"] {
        let answer = engine
            .chat(&json!({"model": model, "messages": hello(), "max_tokens": 1}))
            .await;
        same(&answer["model"], &json!(model), &answer);
    }
    let answer = engine
        .chat(&json!({"messages": hello(), "max_tokens": 1}))
        .await;
    same(&answer["model"], &json!("default"), &answer);
}

async fn rendered(engine: &Engine, messages: &Value, more: &Value) -> String {
    let mut body = json!({"model": "tiny", "messages": messages, "max_tokens": 1, "return_prompt_token_ids": true});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    let answer = engine.chat(&body).await;
    engine
        .tokenizer
        .decode(&ids_of(&answer["choices"][0]["prompt_token_ids"]), false)
        .unwrap()
}

/// It is taken for a user's, so that the model has something to answer.
pub(crate) async fn an_assistant_message_at_the_end(engine: &Engine) {
    let messages =
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I think"}]);
    assert_eq!(
        rendered(engine, &messages, &json!({})).await,
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>user\nI think<|im_end|>\n<|im_start|>assistant\n"
    );
}

pub(crate) async fn an_assistant_message_to_continue(engine: &Engine) {
    let messages =
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I think"}]);
    assert_eq!(
        rendered(engine, &messages, &json!({"continue_final_message": true})).await,
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nI think"
    );
}

pub(crate) async fn several_choices(engine: &Engine) {
    let answer = engine
        .chat(&json!({"model": "tiny", "messages": hello(), "max_tokens": 8, "temperature": 1, "n": 2, "ignore_eos": true}))
        .await;
    let choices = answer["choices"].as_array().unwrap();
    same(&choices.len(), &2, &answer);
    same(&choices[1]["index"], &json!(1), &answer);
    same(&answer["usage"]["completion_tokens"], &json!(16), &answer);
}

pub(crate) async fn completions_have_ids(engine: &Engine) {
    let answer = engine
        .post(
            "/v1/completions",
            &json!({"model": "tiny", "prompt": "The answer is", "max_tokens": 5, "ignore_eos": true, "logprobs": 1, "return_token_ids": true}),
        )
        .await
        .ok();
    let choice = &answer["choices"][0];
    let ids = ids_of(&choice["token_ids"]);
    same(&ids.len(), &5, &answer);
    same(
        &ids_of(&choice["prompt_token_ids"]),
        &engine.ids("The answer is"),
        &answer,
    );
    same(
        &choice["text"],
        &json!(engine.tokenizer.decode(&ids, true).unwrap()),
        &answer,
    );
    same(
        &choice["logprobs"]["token_logprobs"]
            .as_array()
            .map(Vec::len),
        &Some(5),
        &answer,
    );
}
