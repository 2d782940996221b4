//! `/tokenize` and `/detokenize`.

use serde_json::{Value, json};

use crate::engine::{CONTEXT, Engine, ids_of, same};

async fn tokenize(engine: &Engine, body: &Value) -> Value {
    let answers = [
        engine.post("/tokenize", body).await.ok(),
        engine.post("/v1/tokenize", body).await.ok(),
    ];
    assert_eq!(answers[0], answers[1]);
    answers[0].clone()
}

pub(crate) async fn of_a_text(engine: &Engine) {
    for text in [
        "What is 3 + 4?",
        "",
        "<|im_start|>user\nhé 😀<|im_end|>",
        "a  b\n\n\tc\u{a0}d",
    ] {
        let answer = tokenize(engine, &json!({"model": "tiny", "prompt": text})).await;
        let ids = engine.ids(text);
        same(
            &answer,
            &json!({"tokens": ids, "count": ids.len(), "max_model_len": CONTEXT}),
            &json!(text),
        );
    }
}

pub(crate) async fn of_messages(engine: &Engine) {
    let answer = tokenize(
        engine,
        &json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}),
    )
    .await;
    let ids = engine.ids("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    same(&ids_of(&answer["tokens"]), &ids, &answer);
    same(&answer["count"], &json!(ids.len()), &answer);
}

pub(crate) async fn of_several_texts(engine: &Engine) {
    let answer = tokenize(
        engine,
        &json!({"model": "tiny", "prompt": ["one", "two three"]}),
    )
    .await;
    let (one, two) = (engine.ids("one"), engine.ids("two three"));
    same(
        &answer,
        &json!({"tokens": [one, two], "count": [one.len(), two.len()], "max_model_len": CONTEXT}),
        &answer,
    );
}

pub(crate) async fn back_to_text(engine: &Engine) {
    let ids = engine.ids("<|im_start|>hé<|im_end|>");
    for (body, expected) in [
        (
            json!({"model": "tiny", "tokens": ids}),
            json!({"text": "hé"}),
        ),
        (
            json!({"model": "tiny", "tokens": ids, "skip_special_tokens": false}),
            json!({"text": "<|im_start|>hé<|im_end|>"}),
        ),
        (
            json!({"model": "tiny", "tokens": [ids, engine.ids("two")]}),
            json!({"text": ["hé", "two"]}),
        ),
    ] {
        for path in ["/detokenize", "/v1/detokenize"] {
            same(&engine.post(path, &body).await.ok(), &expected, &body);
        }
    }
}
