//! Log-probabilities: how many, of what, and what they sum to.

use serde_json::{Value, json};

use crate::engine::{Engine, ids_of, same, triples};

fn request(engine: &Engine, more: &Value) -> Value {
    let mut body = json!({
        "input_ids": engine.ids("What is 17 plus 25?"),
        "return_logprob": true,
        "sampling_params": {"max_new_tokens": 9, "temperature": 0, "ignore_eos": true},
    });
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

pub(crate) async fn every_output_token_has_one(engine: &Engine) {
    for sampling in [
        json!({"max_new_tokens": 9, "temperature": 0, "ignore_eos": true}),
        json!({"max_new_tokens": 30, "temperature": 1, "top_p": 1, "ignore_eos": true}),
        json!({"max_new_tokens": 30, "temperature": 0.6, "top_k": 20, "ignore_eos": true}),
    ] {
        let answer = engine
            .generate(&request(engine, &json!({"sampling_params": sampling})))
            .await;
        let meta = &answer["meta_info"];
        let log_probs = triples(&meta["output_token_logprobs"]);
        let ids: Vec<u32> = log_probs.iter().map(|(_, id, _)| *id).collect();
        same(&ids, &ids_of(&answer["output_ids"]), &answer);
        same(&meta["completion_tokens"], &json!(ids.len()), &answer);
        same(
            &meta["output_token_logprobs_length"],
            &json!(ids.len()),
            &answer,
        );
        same(&meta["input_token_logprobs"], &json!([]), &answer);
        for (log_prob, _, text) in log_probs {
            assert!(
                log_prob.is_some_and(|value| value.is_finite() && value <= 0.0),
                "{answer}"
            );
            same(&text, &None, &answer);
        }
    }
    let plain = engine
        .generate(&request(engine, &json!({"return_logprob": false})))
        .await;
    same(
        &plain["meta_info"].get("output_token_logprobs"),
        &None,
        &plain,
    );
}

pub(crate) async fn text_beside_them_on_request(engine: &Engine) {
    let answer = engine
        .generate(&request(engine, &json!({"return_text_in_logprobs": true})))
        .await;
    for (_, id, text) in triples(&answer["meta_info"]["output_token_logprobs"]) {
        same(&text, &engine.tokenizer.token_text(id), &answer);
    }
}

pub(crate) async fn the_greedy_token_is_the_most_likely(engine: &Engine) {
    let answer = engine
        .generate(&request(engine, &json!({"top_logprobs_num": 3})))
        .await;
    let meta = &answer["meta_info"];
    let chosen = triples(&meta["output_token_logprobs"]);
    let top = meta["output_top_logprobs"].as_array().unwrap();
    same(&top.len(), &chosen.len(), &answer);
    for (alternatives, (log_prob, id, _)) in top.iter().zip(chosen) {
        let alternatives = triples(alternatives);
        same(&alternatives.len(), &3, &answer);
        same(
            &(alternatives[0].0, alternatives[0].1),
            &(log_prob, id),
            &answer,
        );
        assert!(
            alternatives.is_sorted_by(|left, right| left.0 >= right.0),
            "{answer}"
        );
    }
}

pub(crate) async fn probabilities_sum_to_one(engine: &Engine) {
    let vocabulary = engine.tokenizer.vocab_size();
    let body = json!({"top_logprobs_num": vocabulary, "sampling_params": {"max_new_tokens": 2, "temperature": 1, "ignore_eos": true}});
    let answer = engine.generate(&request(engine, &body)).await;
    let meta = &answer["meta_info"];
    for (alternatives, (log_prob, id, _)) in meta["output_top_logprobs"]
        .as_array()
        .unwrap()
        .iter()
        .zip(triples(&meta["output_token_logprobs"]))
    {
        let alternatives = triples(alternatives);
        assert_eq!(alternatives.len(), vocabulary);
        let sum: f64 = alternatives
            .iter()
            .map(|(log_prob, _, _)| log_prob.unwrap().exp())
            .sum();
        assert!((sum - 1.0).abs() < 1e-3, "they sum to {sum}");
        let own = alternatives
            .iter()
            .find(|(_, other, _)| *other == id)
            .unwrap();
        assert_eq!(own.0, log_prob);
    }
}

pub(crate) async fn scoring_a_prompt_generates_nothing(engine: &Engine) {
    let prompt = engine.ids("What is 17 plus 25?");
    let body = json!({"logprob_start_len": 0, "sampling_params": {"max_new_tokens": 0}});
    let answer = engine.generate(&request(engine, &body)).await;
    let meta = &answer["meta_info"];
    same(&answer["output_ids"], &json!([]), &answer);
    same(&meta["completion_tokens"], &json!(0), &answer);
    let scored = triples(&meta["input_token_logprobs"]);
    let ids: Vec<u32> = scored.iter().map(|(_, id, _)| *id).collect();
    same(&ids, &prompt, &answer);
    same(&scored[0].0, &None, &answer);
    assert!(
        scored[1..]
            .iter()
            .all(|(log_prob, _, _)| log_prob.is_some_and(|value| value <= 0.0)),
        "{answer}"
    );
}

pub(crate) async fn scoring_agrees_with_generation(engine: &Engine) {
    let prompt = engine.ids("What is 17 plus 25?");
    let sampling = json!({"max_new_tokens": 8, "temperature": 1, "ignore_eos": true});
    let generated = engine
        .generate(&request(engine, &json!({"sampling_params": sampling})))
        .await;
    let mut ids = prompt.clone();
    ids.extend(ids_of(&generated["output_ids"]));
    let body =
        json!({"input_ids": ids, "logprob_start_len": 0, "sampling_params": {"max_new_tokens": 0}});
    let scored = triples(
        &engine.generate(&request(engine, &body)).await["meta_info"]["input_token_logprobs"],
    );
    for (scored, generated) in scored[prompt.len()..]
        .iter()
        .zip(triples(&generated["meta_info"]["output_token_logprobs"]))
    {
        assert_eq!(scored.1, generated.1);
        let (scored, generated) = (scored.0.unwrap(), generated.0.unwrap());
        assert!(
            (scored - generated).abs() < 1e-3,
            "{scored} is not {generated}"
        );
    }
}

pub(crate) async fn a_low_temperature_sharpens_them(engine: &Engine) {
    let mut best = Vec::new();
    for temperature in [2.0, 1.0, 0.5] {
        let sampling = json!({"max_new_tokens": 1, "temperature": temperature, "ignore_eos": true});
        let answer = engine
            .generate(&request(
                engine,
                &json!({"top_logprobs_num": 1, "sampling_params": sampling}),
            ))
            .await;
        best.push(triples(&answer["meta_info"]["output_top_logprobs"][0])[0].clone());
    }
    assert!(best[0].1 == best[1].1 && best[1].1 == best[2].1, "{best:?}");
    assert!(best[0].0 < best[1].0 && best[1].0 < best[2].0, "{best:?}");
}

pub(crate) async fn chosen_token_ids(engine: &Engine) {
    let answer = engine
        .generate(&request(engine, &json!({"token_ids_logprob": [5, 9]})))
        .await;
    let meta = &answer["meta_info"];
    let chosen = meta["output_token_ids_logprobs"].as_array().unwrap();
    same(&chosen.len(), &9, &answer);
    for position in chosen {
        let ids: Vec<u32> = triples(position).iter().map(|(_, id, _)| *id).collect();
        same(&ids, &vec![5, 9], &answer);
    }
}
