//! Replies in the shape and proportions of SGLang 0.5.23: a captured reply, its lists grown to the wanted number of tokens.

use bytes::Bytes;
use serde_json::{Map, Value, json};

const CHAT: &str =
    include_str!("../../crates/sglang-simulator/tests/captures/41-chat-meta-only.json");
const GENERATE: &str =
    include_str!("../../crates/sglang-simulator/tests/captures/18-generate-logprob-rl.json");

/// Tokens that a turn generates.
pub(crate) const OUTPUT: usize = 256;

/// Ids below this, spread evenly as in no real text: real ones are shorter, so that this errs against us.
const VOCABULARY: usize = 151_643;

const TEXT: &str = " tok";

pub(crate) fn token_id(position: usize) -> usize {
    position.wrapping_mul(0x9E37_79B1) % VOCABULARY
}

/// A float32, written with the digits that SGLang writes.
fn log_prob(position: usize) -> f64 {
    let uniform = f32::from(u16::try_from(token_id(position) % 60_000).unwrap()) / 60_000.0;
    f64::from(-(uniform + 1e-4).ln().abs())
}

fn captured(text: &str) -> Value {
    let capture: Value = serde_json::from_str(text).unwrap();
    capture["exchanges"][0]["response"]["body"].clone()
}

fn rows(first: usize, output: usize, text: &Value) -> Vec<Value> {
    (first..first + output)
        .map(|at| json!([log_prob(at), token_id(at), text]))
        .collect()
}

fn meta_info(captured: &Value, prompt: usize, output: usize, text: &Value) -> Value {
    let mut meta = captured.clone();
    meta["finish_reason"] = json!({"type": "stop", "matched": 151_645});
    meta["prompt_tokens"] = json!(prompt);
    meta["output_token_logprobs"] = rows(prompt, output, text).into();
    meta["output_token_logprobs_length"] = json!(output);
    meta["completion_tokens"] = json!(output);
    meta["cached_tokens"] = json!(prompt.saturating_sub(64));
    meta["weight_versions"][0]["end"] = json!(output);
    meta
}

/// A chat reply to a prompt of that many tokens, with everything that Recorded mode asks for.
pub(crate) fn chat(prompt: usize) -> Bytes {
    let mut reply = captured(CHAT);
    let choice = &reply["choices"][0];
    let entry = &choice["logprobs"]["content"][0];
    let content: Vec<Value> = (prompt..prompt + OUTPUT)
        .map(|at| {
            let mut entry = entry.clone();
            entry["token"] = json!(TEXT);
            entry["bytes"] = json!(TEXT.as_bytes());
            entry["logprob"] = json!(log_prob(at));
            entry
        })
        .collect();
    let mut grown = Map::new();
    for (key, value) in choice.as_object().unwrap() {
        let value = match key.as_str() {
            "message" => {
                json!({"role": "assistant", "content": TEXT.repeat(OUTPUT), "reasoning_content": null})
            }
            "logprobs" => json!({"content": content}),
            "finish_reason" => json!("stop"),
            "matched_stop" => json!(151_645),
            "meta_info" => {
                let ids: Vec<usize> = (0..prompt).map(token_id).collect();
                grown.insert("prompt_token_ids".to_owned(), json!(ids));
                meta_info(value, prompt, OUTPUT, &json!(TEXT))
            }
            _ => value.clone(),
        };
        grown.insert(key.clone(), value);
    }
    reply["choices"][0] = grown.into();
    reply["usage"] = json!({"prompt_tokens": prompt, "total_tokens": prompt + OUTPUT, "completion_tokens": OUTPUT,
        "prompt_tokens_details": null, "reasoning_tokens": 0, "completion_tokens_details": null});
    Bytes::from(reply.to_string())
}

/// A reply of `/generate` with log-probs.
pub(crate) fn generate(output: usize) -> Bytes {
    let mut reply = captured(GENERATE);
    reply["text"] = json!(TEXT.repeat(output));
    reply["output_ids"] = (0..output).map(token_id).collect();
    reply["meta_info"] = meta_info(&reply["meta_info"], 0, output, &Value::Null);
    Bytes::from(reply.to_string())
}
