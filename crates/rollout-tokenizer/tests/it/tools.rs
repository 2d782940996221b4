//! Tools in the form in which SGLang 0.5.23 renders them; the expected texts are from a running server.

use rollout_tokenizer::sglang_tools;
use serde_json::{Value, json};

fn shown(tool: &Value) -> String {
    let tools = sglang_tools(Some(&json!([tool]))).unwrap().unwrap();
    tools[0].to_string()
}

#[test]
fn fields_keep_the_clients_order_and_missing_ones_are_null() {
    assert_eq!(
        shown(
            &json!({"type": "function", "function": {"parameters": {"b": 1, "a": 2}, "name": "f", "description": "d"}})
        ),
        r#"{"type":"function","function":{"parameters":{"b":1,"a":2},"name":"f","description":"d"},"defer_loading":null}"#
    );
    assert_eq!(
        shown(&json!({"function": {"name": "g"}})),
        r#"{"type":"function","function":{"name":"g","description":null,"parameters":null},"defer_loading":null}"#
    );
}

#[test]
fn unknown_fields_are_dropped_and_strict_is_shown_when_it_is_set() {
    assert_eq!(
        shown(
            &json!({"type": "function", "extra": 1, "function": {"name": "g", "strict": true, "x": 2, "description": null}})
        ),
        r#"{"type":"function","function":{"name":"g","strict":true,"description":null,"parameters":null},"defer_loading":null}"#
    );
    assert!(!shown(&json!({"function": {"name": "g", "strict": null}})).contains("strict"));
}

#[test]
fn deferred_loading_reaches_the_function() {
    assert_eq!(
        shown(&json!({"function": {"name": "g"}, "defer_loading": true})),
        r#"{"type":"function","function":{"name":"g","description":null,"parameters":null,"defer_loading":true},"defer_loading":true}"#
    );
}

#[test]
fn no_tools_are_none() {
    for tools in [None, Some(json!(null)), Some(json!([]))] {
        assert_eq!(sglang_tools(tools.as_ref()).unwrap(), None);
    }
}

#[test]
fn malformed_tools_are_errors_that_name_the_place() {
    for (tools, text) in [
        (json!({}), "tools: must be an array"),
        (json!(["f"]), "tools[0]: must be an object"),
        (
            json!([{"name": "f"}]),
            "tools[0].function: must be an object",
        ),
        (
            json!([{"function": {}}]),
            "tools[0].function.name: must be a string",
        ),
        (
            json!([{"function": {"name": "f", "description": 1}}]),
            "tools[0].function.description: must be a string or null",
        ),
    ] {
        assert_eq!(sglang_tools(Some(&tools)).unwrap_err().to_string(), text);
    }
}
