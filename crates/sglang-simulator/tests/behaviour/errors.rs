//! What bad requests are told: status, shape and text.

use serde_json::{Value, json};

use crate::engine::{CONTEXT, Engine};

fn native(message: &str) -> Value {
    json!({"error": {"message": message}})
}

fn openai(kind: &str, message: &str) -> Value {
    json!({"object": "error", "message": message, "type": kind, "param": null, "code": 400})
}

pub(crate) async fn of_generate(engine: &Engine) {
    let ids = engine.ids("hello");
    for (body, expected) in [
        (
            json!({"sampling_params": {"max_new_tokens": 1}}),
            native("Either text, input_ids or input_embeds should be provided."),
        ),
        (
            json!({"input_ids": ids, "sampling_params": {"temperature": -1}}),
            native("temperature must be a non-negative finite number, got -1."),
        ),
        (
            json!({"input_ids": vec![5; 100], "sampling_params": {"max_new_tokens": CONTEXT}}),
            native(
                "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 4196 tokens: \
                 100 tokens from the input messages and 4096 tokens for the completion. Please reduce the number of tokens in the input \
                 messages or the completion to fit within the limit.",
            ),
        ),
        (
            json!({"input_ids": ids, "sampling_params": {"top_p": 0}}),
            native("top_p must be in (0, 1], got 0."),
        ),
        (
            json!({"input_ids": ids, "sampling_params": {"top_k": -2}}),
            native("top_k must be -1 (disable) or at least 1, got -2."),
        ),
        (
            json!({"input_ids": ids, "sampling_params": {"max_new_tokens": -1}}),
            native("max_new_tokens must be at least 0, got -1."),
        ),
    ] {
        let answer = engine.post("/generate", &body).await;
        assert_eq!((answer.status, answer.json()), (400, expected), "{body}");
    }
    let answer = engine
        .post(
            "/generate",
            &json!({"text": "a", "sampling_params": {"foo": 1}}),
        )
        .await;
    assert_eq!(answer.status, 400);
    let message = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with(
            "unknown field `foo`, expected one of `max_new_tokens`, `stop`, `stop_token_ids`"
        ),
        "{message}"
    );
    let answer = engine
        .post_raw("/generate", "application/json", "{\"text\": ")
        .await;
    assert_eq!(answer.status, 400);
    assert!(
        answer
            .text
            .contains("'type': 'json_invalid', 'loc': ('body', 9), 'msg': 'JSON decode error'"),
        "{}",
        answer.text
    );
}

pub(crate) async fn of_chat(engine: &Engine) {
    let hello = json!([{"role": "user", "content": "hi"}]);
    for (body, expected) in [
        (
            json!({"model": "tiny", "messages": []}),
            openai("BadRequestError", "Messages cannot be empty."),
        ),
        (
            json!({"model": "tiny", "messages": [], "input_ids": [5]}),
            openai("BadRequestError", "Messages cannot be empty."),
        ),
        (
            json!({"model": "tiny", "messages": hello, "tool_choice": "required"}),
            openai(
                "BadRequestError",
                "Tools cannot be empty if tool choice is set to required.",
            ),
        ),
        (
            json!({"model": "tiny", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
            openai(
                "BadRequestError",
                "Model only supports text input; received unsupported content type 'image_url'.",
            ),
        ),
        (
            json!({"model": "tiny", "messages": hello, "temperature": -1}),
            openai(
                "BadRequestError",
                "temperature must be a non-negative finite number, got -1.0.",
            ),
        ),
    ] {
        let answer = engine.post("/v1/chat/completions", &body).await;
        assert_eq!((answer.status, answer.json()), (400, expected), "{body}");
    }
    for (body, part) in [
        (
            json!({"model": "tiny"}),
            "{'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'",
        ),
        (
            json!({"model": "tiny", "messages": hello, "max_tokens": "x"}),
            "'loc': ('body', 'max_tokens')",
        ),
        (
            json!({"model": "tiny", "messages": [{"role": "user"}]}),
            "'msg': 'Field required'",
        ),
        (
            json!({"model": "tiny", "messages": hello, "tools": [{"type": "function"}]}),
            "{'type': 'missing', 'loc': ('body', 'tools', 0, 'function'), 'msg': 'Field required'",
        ),
        (
            json!({"model": "tiny", "messages": [{"role": "judge", "content": "x"}]}),
            "'role' must be one of 'system', 'assistant', 'tool'",
        ),
    ] {
        let answer = engine.post("/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 400, "{body}");
        let error = answer.json();
        assert_eq!(
            (&error["object"], &error["type"], &error["code"]),
            (&json!("error"), &json!("Bad Request"), &json!(400)),
            "{error}"
        );
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    }
    let answer = engine
        .post_raw("/v1/chat/completions", "text/plain", "{\"messages\": []}")
        .await;
    assert_eq!(answer.status, 400);
    assert!(
        answer
            .text
            .contains("Unsupported Media Type: Only 'application/json' is allowed"),
        "{}",
        answer.text
    );
    let answer = engine
        .post_raw("/v1/chat/completions", "application/json", "{\"model\":")
        .await;
    assert_eq!(answer.status, 400);
    assert!(
        answer
            .text
            .contains("'type': 'json_invalid', 'loc': ('body', 9)"),
        "{}",
        answer.text
    );
}

pub(crate) async fn of_the_template(engine: &Engine) {
    let call = |arguments: &str| {
        json!({"messages": [{"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]}]})
    };
    for (body, message) in [
        (
            json!({"messages": [{"role": "latest_reminder", "content": "x"}]}),
            "the chat template knows no role latest_reminder",
        ),
        (
            call("{x"),
            "Assistant tool call function.arguments must be valid JSON.",
        ),
        (
            call("[1]"),
            "Assistant tool call function.arguments must be a JSON object.",
        ),
    ] {
        let answer = engine.post("/v1/chat/completions", &body).await;
        assert_eq!(
            (answer.status, answer.json()),
            (400, openai("BadRequest", message)),
            "{body}"
        );
    }
}

pub(crate) async fn of_routes(engine: &Engine) {
    let answer = engine.get("/nothing/here").await;
    assert_eq!(
        (answer.status, answer.json()),
        (404, json!({"detail": "Not Found"}))
    );
    let answer = engine.get("/generate").await;
    assert_eq!(
        (answer.status, answer.json()),
        (405, json!({"detail": "Method Not Allowed"}))
    );
    let answer = engine.get("/v1/models/nope").await;
    let expected = json!({"error": {"message": "The model 'nope' does not exist", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}});
    assert_eq!((answer.status, answer.json()), (404, expected));
}

pub(crate) async fn a_prompt_beyond_the_context(engine: &Engine) {
    let message =
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).";
    let answer = engine
        .post("/generate", &json!({"input_ids": vec![5; 5000]}))
        .await;
    assert_eq!((answer.status, answer.json()), (400, native(message)));
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "input_ids": vec![5; 5000]});
    let answer = engine.post("/v1/chat/completions", &body).await;
    assert_eq!(
        (answer.status, answer.json()),
        (400, openai("BadRequestError", message))
    );
}

pub(crate) async fn a_limit_beyond_the_context(engine: &Engine) {
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5000});
    let answer = engine.post("/v1/chat/completions", &body).await;
    let message = "max_completion_tokens is too large: 5000.This model supports at most 4096 completion tokens.";
    assert_eq!(
        (answer.status, answer.json()),
        (400, openai("BadRequestError", message))
    );
}

pub(crate) async fn of_rids(engine: &Engine) {
    let batch = |rids: Value| json!({"input_ids": [[5], [6]], "rid": rids, "sampling_params": {"max_new_tokens": 1}});
    for (rids, message) in [
        (
            json!(["a"]),
            "The specified rids length mismatch with the batch_size for batch processing.",
        ),
        (
            json!(["a", "a"]),
            "Duplicate request IDs detected within the request: ['a']",
        ),
    ] {
        let answer = engine.post("/generate", &batch(rids)).await;
        assert_eq!((answer.status, answer.json()), (400, native(message)));
    }
}
