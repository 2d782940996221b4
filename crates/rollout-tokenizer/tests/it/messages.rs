//! What happens to messages before a template sees them.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rollout_tokenizer::{Tokenizer, TokenizerError};
use serde_json::{Value, json};

use crate::render;

/// What a template that prints its messages as JSON is given.
fn seen(messages: &Value) -> Result<Value, TokenizerError> {
    let tokenizer = Tokenizer::builtin()
        .unwrap()
        .with_chat_template("{{ messages | tojson }}")
        .unwrap();
    render(&tokenizer, messages, &json!({}), false).map(|text| serde_json::from_str(&text).unwrap())
}

fn problem(messages: &Value) -> String {
    let error = seen(messages).unwrap_err();
    assert!(error.is_callers());
    error.to_string()
}

#[test]
fn a_null_content_is_the_empty_string_and_other_nulls_are_absent() {
    let messages =
        json!([{"role": "assistant", "content": null, "name": null}, {"role": "assistant"}]);
    assert_eq!(
        seen(&messages).unwrap(),
        json!([{"role": "assistant", "content": ""}, {"role": "assistant", "content": ""}])
    );
}

#[test]
fn arguments_of_a_tool_call_become_an_object_in_the_order_of_the_text() {
    let call = |arguments: Value| json!([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]);
    let text = seen(&call(json!(r#"{"b": 1, "a": {"d": 1.0, "c": null}}"#)))
        .unwrap()
        .to_string();
    assert!(
        text.contains(r#""arguments":{"b":1,"a":{"d":1.0,"c":null}}"#),
        "{text}"
    );
}

#[test]
fn arguments_that_are_no_object_stay_as_they_came() {
    for arguments in [json!("{\"a\": "), json!(""), json!("[1]"), json!({"a": 1})] {
        let messages = json!([{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]);
        assert_eq!(seen(&messages).unwrap(), messages);
    }
}

#[test]
fn text_parts_are_flattened_with_a_space_between() {
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}]);
    assert_eq!(
        seen(&messages).unwrap(),
        json!([{"role": "user", "content": "a b"}])
    );
    assert_eq!(
        seen(&json!([{"role": "user", "content": []}])).unwrap(),
        json!([{"role": "user", "content": ""}])
    );
}

#[test]
fn a_template_that_iterates_over_the_content_gets_the_parts() {
    let source = "{% for m in messages %}{% if m.content is string %}s:{{ m.content }};{% else %}{%- for part in m['content'] | list %}p:{{ part.text }};{% endfor %}{% endif %}{% endfor %}";
    let tokenizer = Tokenizer::builtin()
        .unwrap()
        .with_chat_template(source)
        .unwrap();
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let messages = json!([{"role": "user", "content": parts}, {"role": "tool", "content": parts}, {"role": "user", "content": "c"}]);
    assert_eq!(
        render(&tokenizer, &messages, &json!({}), false).unwrap(),
        "p:a;p:b;s:a b;s:c;"
    );
}

#[test]
fn malformed_messages_are_errors_that_name_the_place() {
    assert_eq!(problem(&json!("hi")), "messages: must be an array");
    assert_eq!(problem(&json!(["hi"])), "messages[0]: must be an object");
    assert_eq!(
        problem(&json!([{"content": "x"}])),
        "messages[0].role: must be a string"
    );
    assert_eq!(
        problem(&json!([{"role": "user", "content": 1}])),
        "messages[0].content: must be a string or an array of text parts"
    );
    assert_eq!(
        problem(
            &json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}])
        ),
        "messages[0].content[1]: is of type \"image_url\": only text is supported"
    );
    assert_eq!(
        problem(&json!([{"role": "user", "content": [{"type": "text"}]}])),
        "messages[0].content[0]: must be {\"type\": \"text\", \"text\": \"...\"}"
    );
}

#[test]
fn the_text_of_raise_exception_is_the_error() {
    let tokenizer = Tokenizer::builtin().unwrap();
    let error = render(
        &tokenizer,
        &json!([{"role": "judge", "content": "x"}]),
        &json!({}),
        false,
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "the chat template knows no role judge");
    assert!(matches!(error, TokenizerError::Refused(_)));
}

#[test]
fn template_arguments_cannot_replace_the_messages() {
    let tokenizer = Tokenizer::builtin()
        .unwrap()
        .with_chat_template("{{ messages | length }}{{ eos_token }}")
        .unwrap();
    let rendered = render(
        &tokenizer,
        &json!([]),
        &json!({"messages": [1, 2], "eos_token": "!"}),
        false,
    )
    .unwrap();
    assert_eq!(rendered, "0!");
}

#[test]
fn the_date_of_a_template_is_the_one_of_the_clock() {
    let at = |seconds: u64, format: &str| {
        let source = format!("{{{{ strftime_now('{format}') }}}}");
        let tokenizer = Tokenizer::builtin()
            .unwrap()
            .with_clock(Arc::new(move || UNIX_EPOCH + Duration::from_secs(seconds)))
            .with_chat_template(&source)
            .unwrap();
        render(&tokenizer, &json!([]), &json!({}), false)
    };
    // Compared with Python's datetime in UTC: a leap day, its year's end, the epoch.
    let all = "%Y-%m-%d %H:%M:%S %A %a %B %b %j %e %-d %I %p %y %%";
    assert_eq!(
        at(951_827_696, all).unwrap(),
        "2000-02-29 12:34:56 Tuesday Tue February Feb 060 29 29 12 PM 00 %"
    );
    assert_eq!(
        at(1_735_689_599, all).unwrap(),
        "2024-12-31 23:59:59 Tuesday Tue December Dec 366 31 31 11 PM 24 %"
    );
    assert_eq!(
        at(0, all).unwrap(),
        "1970-01-01 00:00:00 Thursday Thu January Jan 001  1 1 12 AM 70 %"
    );
    assert_eq!(at(1_767_225_600, "%d %b %Y").unwrap(), "01 Jan 2026");
    assert!(
        at(0, "%Q")
            .unwrap_err()
            .to_string()
            .contains("does not know a directive")
    );
}
