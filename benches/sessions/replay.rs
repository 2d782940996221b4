//! Routed experts of 1 KiB per token: from the reply to the record, against decoding base64 and copying the bytes once.

use std::hint::black_box;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rollout_session::{ChatReply, CollectOptions, Forest, RoutedExperts, TurnContext, codec, plan};
use serde_json::json;

use crate::median;

const TOKENS: usize = 8_000;
const ROUNDS: usize = 15;

pub(crate) fn measure() {
    let rows = vec![7u8; (TOKENS - 1) * 1_024];
    let encoded = STANDARD.encode(&rows);
    let prompt: Vec<usize> = (0..TOKENS - 1).collect();
    let body = json!({"choices": [{"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop", "prompt_token_ids": prompt,
        "meta_info": {"output_token_logprobs": [[-0.5, 7, "x"]], "completion_tokens": 1, "routed_experts": encoded}}]})
    .to_string()
    .into_bytes();
    let (mut floor, mut recorded, mut collected) = (Vec::new(), Vec::new(), Vec::new());
    let options = CollectOptions {
        routed_experts: Some(RoutedExperts {
            layers: 32,
            additional: false,
        }),
        ..CollectOptions::default()
    };
    for _ in 0..ROUNDS {
        let started = Instant::now();
        black_box(STANDARD.decode(&encoded).unwrap().clone());
        floor.push(started.elapsed().as_secs_f64() * 1e3);
        let started = Instant::now();
        let mut forest = Forest::new(0);
        let reply = ChatReply::parse(&body, None, None).unwrap();
        let client = reply.client_body(&body);
        let context = TurnContext {
            messages: Some(1),
            response: reply.record_body(&body),
            ..TurnContext::default()
        };
        forest.commit(0, reply.generation, context).unwrap();
        recorded.push(started.elapsed().as_secs_f64() * 1e3);
        black_box(client);
        let held = forest.heap_bytes();
        assert!(held < rows.len() + TOKENS * 16, "{held}");
        let started = Instant::now();
        let samples = plan(&forest, options.clone()).assemble(&forest, &[]);
        black_box(codec::encode(&samples).unwrap());
        collected.push(started.elapsed().as_secs_f64() * 1e3);
    }
    println!(
        "replay, {TOKENS} tokens of 1 KiB: record {:.2} ms, collect and encode {:.2} ms; decoding base64 and one copy {:.2} ms",
        median(recorded),
        median(collected),
        median(floor)
    );
}
