//! `/generate`: ids and text in, ids and text out.

use serde_json::{Value, json};

use crate::engine::{Engine, ids_of, same};

pub(crate) async fn ids_in_ids_out(engine: &Engine) {
    let prompt = engine.ids("What is 17 plus 25?");
    let answer = engine
        .generate(&json!({
            "rid": "ids-in",
            "input_ids": prompt,
            "sampling_params": {"max_new_tokens": 7, "temperature": 0, "ignore_eos": true},
        }))
        .await;
    let meta = &answer["meta_info"];
    same(&ids_of(&answer["output_ids"]).len(), &7, &answer);
    same(&meta["completion_tokens"], &json!(7), &answer);
    same(&meta["prompt_tokens"], &json!(prompt.len()), &answer);
    same(
        &meta["finish_reason"],
        &json!({"type": "length", "length": 7}),
        &answer,
    );
    same(&meta["id"], &json!("ids-in"), &answer);
    same(&answer.get("prompt_token_ids"), &None, &answer);
}

pub(crate) async fn greedy_decoding_is_repeatable(engine: &Engine) {
    let body = json!({
        "input_ids": engine.ids("The quick brown fox"),
        "return_logprob": true,
        "sampling_params": {"max_new_tokens": 20, "temperature": 0, "ignore_eos": true},
    });
    let (first, second) = (engine.generate(&body).await, engine.generate(&body).await);
    assert_eq!(first["output_ids"], second["output_ids"]);
    assert_eq!(first["text"], second["text"]);
    assert_ne!(first["meta_info"]["id"], second["meta_info"]["id"]);
}

pub(crate) async fn text_is_tokenized_and_detokenized_with_the_tokenizer(engine: &Engine) {
    for text in [
        "What is 3 + 4?",
        "<|im_start|>user\nhé 😀<|im_end|>",
        "  two  spaces\n\n",
    ] {
        let answer = engine
            .generate(&json!({
                "text": text,
                "return_prompt_token_ids": true,
                "sampling_params": {"max_new_tokens": 12, "temperature": 1, "sampling_seed": 5, "ignore_eos": true},
            }))
            .await;
        same(
            &ids_of(&answer["prompt_token_ids"]),
            &engine.ids(text),
            &answer,
        );
        let output = ids_of(&answer["output_ids"]);
        same(
            &answer["text"],
            &json!(engine.tokenizer.decode(&output, true).unwrap()),
            &answer,
        );
    }
}

pub(crate) async fn ids_win_over_text(engine: &Engine) {
    let ids = engine.ids("one");
    let answer = engine
        .generate(&json!({
            "text": "a longer text that nobody reads",
            "input_ids": ids,
            "return_prompt_token_ids": true,
            "sampling_params": {"max_new_tokens": 1},
        }))
        .await;
    same(&ids_of(&answer["prompt_token_ids"]), &ids, &answer);
}

pub(crate) async fn prompt_ids_on_request(engine: &Engine) {
    let ids = engine.ids("What is 3 + 4?");
    let body = json!({"input_ids": ids, "return_prompt_token_ids": true, "sampling_params": {"max_new_tokens": 1}});
    // The second time all of it is in the cache.
    for _ in 0..2 {
        let answer = engine.generate(&body).await;
        same(&ids_of(&answer["prompt_token_ids"]), &ids, &answer);
    }
}

pub(crate) async fn a_batch_keeps_its_order_and_numbers_its_rids(engine: &Engine) {
    let prompts = [
        engine.ids("one"),
        engine.ids("two three"),
        engine.ids("four"),
    ];
    let answer = engine
        .generate(&json!({
            "rid": "batch",
            "input_ids": prompts,
            "sampling_params": {"max_new_tokens": 3, "ignore_eos": true},
        }))
        .await;
    let answers = answer.as_array().unwrap();
    same(&answers.len(), &prompts.len(), &answer);
    for (index, (part, prompt)) in answers.iter().zip(&prompts).enumerate() {
        same(
            &part["meta_info"]["id"],
            &json!(format!("batch_{index}")),
            &answer,
        );
        same(
            &part["meta_info"]["prompt_tokens"],
            &json!(prompt.len()),
            &answer,
        );
    }
    let named = engine
        .generate(&json!({
            "rid": ["left", "right"],
            "input_ids": &prompts[..2],
            "sampling_params": [{"max_new_tokens": 1, "ignore_eos": true}, {"max_new_tokens": 2, "ignore_eos": true}],
        }))
        .await;
    same(&named[0]["meta_info"]["id"], &json!("left"), &named);
    same(&named[1]["meta_info"]["id"], &json!("right"), &named);
    same(
        &named[0]["meta_info"]["completion_tokens"],
        &json!(1),
        &named,
    );
    same(
        &named[1]["meta_info"]["completion_tokens"],
        &json!(2),
        &named,
    );
}

pub(crate) async fn several_samples_of_one_prompt(engine: &Engine) {
    let answer = engine
        .generate(&json!({
            "input_ids": engine.ids("The answer is"),
            "sampling_params": {"max_new_tokens": 12, "temperature": 1, "n": 3, "ignore_eos": true},
        }))
        .await;
    let samples: Vec<&Value> = answer
        .as_array()
        .unwrap()
        .iter()
        .map(|sample| &sample["output_ids"])
        .collect();
    same(&samples.len(), &3, &answer);
    assert!(
        samples[0] != samples[1] && samples[1] != samples[2],
        "sampled alike: {answer}"
    );
}

pub(crate) async fn equal_requests_are_sampled_apart(engine: &Engine) {
    let body = json!({
        "input_ids": engine.ids("The answer is"),
        "sampling_params": {"max_new_tokens": 12, "temperature": 1, "ignore_eos": true},
    });
    let (first, second) = (engine.generate(&body).await, engine.generate(&body).await);
    assert_ne!(first["output_ids"], second["output_ids"]);
}

pub(crate) async fn without_a_limit_128_tokens(engine: &Engine) {
    let answer = engine
        .generate(&json!({"input_ids": engine.ids("hello"), "sampling_params": {"temperature": 0, "ignore_eos": true}}))
        .await;
    same(
        &answer["meta_info"]["finish_reason"],
        &json!({"type": "length", "length": 128}),
        &answer,
    );
}

pub(crate) async fn unknown_fields_are_ignored(engine: &Engine) {
    let answer = engine
        .generate(&json!({"input_ids": engine.ids("hello"), "nobody_knows": {"a": 1}, "sampling_params": {"max_new_tokens": 1}}))
        .await;
    same(
        &answer["meta_info"]["completion_tokens"],
        &json!(1),
        &answer,
    );
}
