//! The built-in chat template: append-only, tools, and the drift that it shows on demand.

use std::sync::LazyLock;

use proptest::prelude::*;
use rollout_tokenizer::{ChatTemplateInput, Tokenizer};
use serde_json::{Map, Value, json};

use crate::render;

fn builtin() -> &'static Tokenizer {
    static BUILTIN: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::builtin().unwrap());
    &BUILTIN
}

fn rendered(messages: &Value, kwargs: &Value, add_generation_prompt: bool) -> String {
    render(builtin(), messages, kwargs, add_generation_prompt).unwrap()
}

#[test]
fn a_tool_is_shown_as_the_json_that_came_in() {
    let tools = json!([{"type": "function", "function": {"description": "é&", "name": "f<>", "parameters": {"b": 1, "a": 2}, "strict": false}, "defer_loading": null}]);
    let text = builtin()
        .apply_chat_template(&ChatTemplateInput {
            messages: &json!([{"role": "user", "content": "hi"}]),
            tools: Some(&tools),
            add_generation_prompt: true,
            kwargs: &Map::new(),
        })
        .unwrap();
    let line = r#"{"type": "function", "function": {"description": "é&", "name": "f<>", "parameters": {"b": 1, "a": 2}, "strict": false}, "defer_loading": null}"#;
    assert!(
        text.contains(&format!("<tools>\n{line}\n</tools>")),
        "{text}"
    );
}

#[test]
fn a_tool_result_is_wrapped_in_a_user_turn() {
    let text = rendered(
        &json!([{"role": "tool", "content": "12", "tool_call_id": "c1"}]),
        &json!({}),
        false,
    );
    assert_eq!(
        text,
        "<|im_start|>user\n<tool_response>\n12\n</tool_response><|im_end|>\n"
    );
}

#[test]
fn without_thinking_the_generation_prompt_has_an_empty_thought() {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let text = rendered(&messages, &json!({"enable_thinking": false}), true);
    assert_eq!(
        text,
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    );
    assert_eq!(
        rendered(&messages, &json!({}), true),
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn the_tool_call_of_an_assistant_is_what_a_model_would_have_written() {
    let call = json!({"type": "function", "function": {"name": "calculator", "arguments": "{\"expression\": \"1 + 2\"}"}});
    let text = rendered(
        &json!([{"role": "assistant", "content": null, "tool_calls": [call, call]}]),
        &json!({}),
        false,
    );
    let block = "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"1 + 2\"}}\n</tool_call>";
    assert_eq!(
        text,
        format!("<|im_start|>assistant\n{block}\n{block}<|im_end|>\n")
    );
}

#[test]
fn stripping_drops_the_reasoning_of_earlier_turns_only() {
    let conversation = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nlong\n</think>\n\nb"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "reasoning_content": "why"},
        {"role": "tool", "content": "e"},
    ]);
    let strip = json!({"strip_earlier_reasoning": true});
    let text = rendered(&conversation, &strip, false);
    assert_eq!(
        text,
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n\
         <|im_start|>assistant\n<think>\nwhy\n</think>\n\nd<|im_end|>\n<|im_start|>user\n<tool_response>\ne\n</tool_response><|im_end|>\n"
    );
    assert!(rendered(&conversation, &json!({}), false).contains("<think>\nlong\n</think>\n\nb"));
}

fn message() -> impl Strategy<Value = Value> {
    let text = "[a-z<>\\n é]{0,12}";
    prop_oneof![
        text.prop_map(|content| json!({"role": "user", "content": content})),
        text.prop_map(|content| json!({"role": "tool", "content": content, "tool_call_id": "c"})),
        (text, proptest::option::of("[a-z]{1,8}"), 0..3_usize).prop_map(|(content, reasoning, calls)| {
            let call = json!({"type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}});
            json!({"role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": vec![call; calls]})
        }),
    ]
}

proptest! {
    #[test]
    fn the_text_of_a_conversation_is_a_prefix_of_the_longer_one(
        system in any::<bool>(), messages in proptest::collection::vec(message(), 1..6), thinking in any::<bool>(),
    ) {
        let tokenizer = builtin();
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
        let kwargs = json!({"enable_thinking": thinking}).as_object().cloned().unwrap();
        let mut all = messages;
        if system {
            all.insert(0, json!({"role": "system", "content": "be brief"}));
        }
        let text = |count: usize, add_generation_prompt: bool| {
            tokenizer.apply_chat_template(&ChatTemplateInput {
                messages: &json!(&all[..count]), tools: Some(&tools), add_generation_prompt, kwargs: &kwargs,
            }).unwrap()
        };
        for (count, next) in all.iter().enumerate().skip(1) {
            prop_assert!(text(count + 1, false).starts_with(&text(count, false)));
            // A model that is told not to think does not think.
            if next["role"] == "assistant" && (thinking || next["reasoning_content"].is_null()) {
                prop_assert!(text(count + 1, false).starts_with(&text(count, true)));
            }
        }
    }
}
