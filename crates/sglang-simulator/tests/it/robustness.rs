//! No body, however odd, brings the engine down or leaves something behind.

use axum::body::Body;
use http::Request;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sglang_simulator::{Config, Simulator};

use crate::mutations::fails_there;
use crate::support::{attempt, call, simulator};

const PATHS: [&str; 15] = [
    "/generate",
    "/v1/chat/completions",
    "/v1/completions",
    "/tokenize",
    "/detokenize",
    "/abort_request",
    "/continue_generation",
    "/flush_cache",
    "/update_weights_from_disk",
    "/update_weights_from_distributed",
    "/update_weight_version",
    "/init_weights_update_group",
    "/get_weights_by_name",
    "/simulator/faults",
    "/nowhere",
];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..700).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z<>|{}\"' é]{0,12}".prop_map(Value::from),
        Just(json!("user")),
        Just(json!("assistant")),
        Just(json!("required")),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 24, 4, |inner| {
        let keys = prop::sample::select(vec![
            "role",
            "content",
            "text",
            "type",
            "n",
            "max_new_tokens",
            "temperature",
            "stop",
            "logit_bias",
            "function",
            "name",
            "parameters",
            "properties",
            "items",
            "enum",
            "tool_calls",
            "arguments",
            "kind",
            "path",
            "percent",
            "seconds",
            "foo",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((keys, inner), 0..4).prop_map(|fields| Value::Object(
                fields
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect::<Map<_, _>>()
            )),
        ]
    })
}

fn body() -> impl Strategy<Value = Value> {
    let fields = prop::sample::select(vec![
        "text",
        "input_ids",
        "sampling_params",
        "rid",
        "return_logprob",
        "logprob_start_len",
        "top_logprobs_num",
        "token_ids_logprob",
        "stream",
        "messages",
        "max_tokens",
        "tools",
        "tool_choice",
        "logprobs",
        "top_logprobs",
        "n",
        "stop",
        "response_format",
        "chat_template_kwargs",
        "prompt",
        "tokens",
        "model_path",
        "new_version",
        "abort_all",
        "stream_options",
        "continue_final_message",
    ]);
    let messages = prop_oneof![Just(json!([{"role": "user", "content": "hi"}])), value(),];
    (
        prop::collection::vec((fields, value()), 0..6),
        messages,
        any::<bool>(),
    )
        .prop_map(|(fields, messages, whole)| {
            let mut body: Map<_, _> = fields
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect();
            if whole {
                body.insert("messages".into(), messages);
                body.entry("text").or_insert_with(|| "hello".into());
            }
            Value::Object(body)
        })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

async fn survives(engine: &Simulator, path: &str, body: Value) {
    let reply = attempt(engine, path, body.clone()).await;
    // a stream that fails breaks off
    let status = reply.as_ref().map_or(0, |reply| reply.status);
    // an id outside of the vocabulary ends the real one, too
    assert!(
        engine.is_dead()
            || status == 200
            || (400..=404).contains(&status)
            || fails_there(path, &body) && (status == 500 || status == 0),
        "{path} {body} gave {reply:?}"
    );
    assert_eq!(
        engine.state().in_flight,
        Vec::<String>::new(),
        "{path} {body}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn odd_bodies_are_answered(path in prop::sample::select(PATHS.to_vec()), body in body()) {
        runtime().block_on(async {
            let engine = simulator(Config { time_scale: 10, ..Config::default() });
            survives(&engine, path, body).await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_no_objects_are_refused() {
    let engine = simulator(Config::default());
    let deep = "[".repeat(500);
    for body in [
        "",
        "null",
        "[]",
        "7",
        "\"x\"",
        "{",
        "{\"a\":}",
        "\u{0}",
        deep.as_str(),
        "{\"text\": \"\\ud800\"}",
    ] {
        for path in PATHS
            .iter()
            .filter(|path| **path != "/flush_cache" && **path != "/nowhere")
        {
            let request = Request::post(*path)
                .header("content-type", "application/json")
                .body(Body::from(body.to_owned()))
                .unwrap();
            let reply = call(&engine, request).await;
            let is_fault_list = *path == "/simulator/faults" && body == "[]";
            assert!(
                reply.status == 400 || is_fault_list,
                "{path} {body}: {} {}",
                reply.status,
                reply.text
            );
        }
    }
}
