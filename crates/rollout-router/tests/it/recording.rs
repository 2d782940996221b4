//! What the page on rollout endpoints promises, and what is recorded of it.

use rollout_session::SampleStatus;
use serde_json::{Value, json};
use sglang_simulator::{Profile, Replies, Script};

use crate::support::{Bed, engine_config, user};

/// An engine that thinks, answers, and stops.
fn talkative(profile: Profile) -> sglang_simulator::Config {
    let script = "
- match: '.*'
  reply: {reasoning_content: 'let me see', content: 'four, é😀'}
";
    let mut config = engine_config();
    config.profile = profile;
    config.server.reasoning_parser = Some("qwen3".to_owned());
    config.replies = Replies {
        script: Some(Script {
            inline: Some(script.to_owned()),
            ..Script::default()
        }),
        ..Replies::default()
    };
    config
}

/// Three turns of a conversation; answers the replies.
async fn converse(bed: &Bed, id: &str, extra: &Value) -> Vec<Value> {
    let mut messages = vec![user("2+2?")];
    let mut replies = Vec::new();
    for _ in 0..3 {
        let mut body = json!({"model": "default", "messages": messages, "max_tokens": 100});
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let reply = bed.chat(id, body).await.ok();
        messages.push(reply["choices"][0]["message"].clone());
        messages.push(user("sure?"));
        replies.push(reply);
    }
    replies
}

fn ids(value: &Value) -> Vec<i64> {
    serde_json::from_value(value.clone()).unwrap()
}

#[tokio::test]
async fn an_append_only_conversation_is_one_sample() {
    for profile in [Profile::Stock, Profile::MilesFork] {
        let bed = Bed::with(vec![talkative(profile)], |_| {}).await;
        let id = bed.session(json!({})).await;
        let replies = converse(&bed, &id, &json!({})).await;
        let collected = bed.samples(&id, json!({"split": true})).await;
        assert_eq!(collected.session_metadata["breaks"], json!([]));
        let [sample] = &collected.samples[..] else {
            panic!("{collected:?}")
        };
        assert_eq!(sample.status, SampleStatus::Completed);
        let last = &replies[2]["choices"][0];
        let prompt = ids(&last["prompt_token_ids"]);
        let rows = last["meta_info"]["output_token_logprobs"]
            .as_array()
            .unwrap();
        let output: Vec<i64> = rows.iter().map(|row| row[1].as_i64().unwrap()).collect();
        assert_eq!(sample.tokens, [prompt, output].concat());
        assert_eq!(sample.weight_versions, ["default"; 3]);
        let trained: usize = replies
            .iter()
            .map(|reply| reply["usage"]["completion_tokens"].as_u64().unwrap())
            .sum::<u64>()
            .try_into()
            .unwrap();
        assert_eq!(sample.trained_tokens(), trained);
        assert!(sample.prefix_cache_info.cached_tokens > 0);
        assert!(
            replies[1]["choices"][0]["meta_info"]["cached_tokens"]
                .as_i64()
                .unwrap()
                > 0
        );
    }
}

#[tokio::test]
async fn the_response_is_the_engines_own_text_with_special_tokens() {
    let bed = Bed::with(vec![talkative(Profile::Stock)], |_| {}).await;
    let id = bed.session(json!({})).await;
    converse(&bed, &id, &json!({})).await;
    let collected = bed.samples(&id, json!({})).await;
    let sample = &collected.samples[0];
    let answer = "<think>\nlet me see\n</think>\n\nfour, é😀<|im_end|>";
    let gap = "\n<|im_start|>user\nsure?<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(sample.response, [answer, gap, answer, gap, answer].concat());
    assert!(!sample.metadata.contains_key("response_gaps_missing"));
}

#[tokio::test]
async fn texts_that_no_engine_decodes_are_left_out_and_counted() {
    let bed = Bed::with(vec![talkative(Profile::Stock)], |_| {}).await;
    let id = bed.session(json!({})).await;
    converse(&bed, &id, &json!({})).await;
    bed.engines[0].simulator.kill();
    let collected = bed.samples(&id, json!({})).await;
    let sample = &collected.samples[0];
    assert_eq!(sample.metadata["response_gaps_missing"], 2);
    assert!(
        sample.response.starts_with("<think>\nlet me see\n</think>"),
        "{}",
        sample.response
    );
    assert!(!sample.response.contains("sure?"));
}

#[tokio::test]
async fn a_template_that_strips_reasoning_gives_samples_apart_and_the_drift_is_counted() {
    let bed = Bed::with(vec![talkative(Profile::Stock)], |_| {}).await;
    let id = bed.session(json!({})).await;
    let strip = json!({"chat_template_kwargs": {"strip_earlier_reasoning": true}});
    let replies = converse(&bed, &id, &strip).await;
    let collected = bed.samples(&id, json!({"split": true})).await;
    assert_eq!(collected.samples.len(), 3);
    let breaks = collected.session_metadata["breaks"].as_array().unwrap();
    assert_eq!(breaks.len(), 2);
    assert_eq!(breaks[0]["turn"], 2);
    assert!(breaks[0]["shared"].as_u64() < breaks[0]["expected"].as_u64());
    for (sample, reply) in collected.samples.iter().zip(&replies) {
        let prompt = ids(&reply["choices"][0]["prompt_token_ids"]);
        assert!(sample.tokens.starts_with(&prompt));
        assert_eq!(sample.tokens.len() - prompt.len(), sample.trained_tokens());
    }
    let first_only = bed.samples(&id, json!({})).await;
    assert_eq!(first_only.samples, collected.samples[..1]);
    assert_eq!(
        first_only.session_metadata["breaks"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn samples_come_as_json_when_asked_for() {
    let bed = Bed::with(vec![talkative(Profile::Stock)], |_| {}).await;
    let id = bed.session(json!({})).await;
    converse(&bed, &id, &json!({})).await;
    let path = format!("/sessions/{id}/samples");
    let client = bed.control().header("accept", "application/json");
    let view = client.post(&path, json!({"metadata": {"reward": 1}})).await;
    assert_eq!(view.headers["content-type"], "application/json");
    let view = view.json();
    assert_eq!(view["empty_reason"], Value::Null);
    assert_eq!(view["samples"][0]["metadata"]["reward"], 1);
    let binary = bed.samples(&id, json!({})).await;
    assert_eq!(ids(&view["samples"][0]["tokens"]), binary.samples[0].tokens);
    let log_probs: Vec<f64> =
        serde_json::from_value(view["samples"][0]["rollout_log_probs"].clone()).unwrap();
    assert_eq!(Some(log_probs), binary.samples[0].rollout_log_probs);
}

#[tokio::test]
async fn a_session_without_turns_has_no_samples() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let collected = bed.samples(&id, json!({"max_seq_len": null})).await;
    assert_eq!(collected.samples, []);
    assert_eq!(
        collected.empty_reason,
        Some(rollout_session::EmptyReason::NoRecords)
    );
}

#[tokio::test]
async fn generate_within_a_session_is_recorded() {
    let bed = Bed::start().await;
    let id = bed.session(json!({})).await;
    let path = format!("/sessions/{id}/generate");
    let body = json!({"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 4, "ignore_eos": true}, "logprob_start_len": 0});
    let reply = bed.agent().post(&path, body).await.ok();
    let output = ids(&reply["output_ids"]);
    let mut next = vec![5, 6, 7];
    next.extend(&output);
    next.push(9);
    let body =
        json!({"input_ids": next, "sampling_params": {"max_new_tokens": 2, "ignore_eos": true}});
    bed.agent().post(&path, body).await.ok();
    let text =
        json!({"text": "hello", "sampling_params": {"max_new_tokens": 2, "ignore_eos": true}});
    bed.agent().post(&path, text).await.ok();
    let collected = bed.samples(&id, json!({"split": true})).await;
    assert_eq!(collected.session_metadata["turns"], 3);
    assert_eq!(
        collected.samples[0].tokens[..7],
        [vec![5, 6, 7], output].concat()
    );
    let requests = bed.engine_requests(&id).await;
    assert!(requests[0].get("logprob_start_len").is_none());
    for refused in [
        json!({"input_ids": [[1], [2]]}),
        json!({"text": ["a", "b"]}),
        json!({"input_ids": [1], "sampling_params": {"n": 2}}),
        json!({"input_ids": [1], "stream": true}),
        json!({"input_ids": [1], "image_data": "x"}),
        json!({"input_ids": [-1]}),
    ] {
        let answer = bed.agent().post(&path, refused.clone()).await;
        assert_eq!(answer.status, 400, "{refused}");
    }
}

#[tokio::test]
async fn the_sampling_policy_holds_for_generate_under_its_own_names() {
    let bed = Bed::start().await;
    let sampling =
        json!({"policy": "Pin", "params": {"temperature": 0.5, "max_tokens": 2, "seed": 7}});
    let id = bed.session(json!({"sampling": sampling})).await;
    let body = json!({"input_ids": [5], "sampling_params": {"temperature": 1.0, "max_new_tokens": 50, "ignore_eos": true}});
    bed.agent()
        .post(&format!("/sessions/{id}/generate"), body)
        .await
        .ok();
    let sent = bed.engine_requests(&id).await.remove(0);
    let expected =
        json!({"ignore_eos": true, "temperature": 0.5, "max_new_tokens": 2, "sampling_seed": 7});
    assert_eq!(sent["sampling_params"], expected);
    let view = bed.control().get(&format!("/sessions/{id}")).await.ok();
    assert_eq!(view["records"][0]["path"], "/generate");
}

#[tokio::test]
async fn the_story_of_a_session_says_what_it_does() {
    let bed = Bed::with(vec![talkative(Profile::Stock)], |_| {}).await;
    let id = bed.session(json!({"job": "swe", "rollout_id": 3})).await;
    converse(&bed, &id, &json!({})).await;
    let view = bed.control().get(&format!("/sessions/{id}")).await.ok();
    assert_eq!(view["session_id"], id);
    assert_eq!(view["records"].as_array().unwrap().len(), 3);
    let record = &view["records"][1];
    assert_eq!(record["path"], "/v1/chat/completions");
    assert_eq!(record["status_code"], 200);
    assert_eq!(record["request"]["messages"].as_array().unwrap().len(), 3);
    assert_eq!(
        record["response"]["choices"][0]["message"]["content"],
        "four, é😀"
    );
    assert!(
        view["metadata"]["accumulated_token_ids"]
            .as_array()
            .unwrap()
            .len()
            > 10
    );
    let story = &view["story"];
    assert_eq!(story["state"], "open");
    assert_eq!(story["turns"], 3);
    assert_eq!(story["engine"], bed.engines[0].url);
    assert_eq!(story["last_error"], Value::Null);
}
