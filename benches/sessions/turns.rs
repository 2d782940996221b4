//! A turn of a long conversation: finding its place and recording its answer.

use std::time::Instant;

use rollout_session::forest::Rules;
use rollout_session::{
    FinishReason, Forest, Generation, Matcher, Shape, TurnContext, message_spans,
};
use serde_json::{Value, json};

use crate::median;

const TURNS: usize = 200;
const ROUNDS: usize = 30;
const OUTPUT: u32 = 100;

/// Microseconds of a turn.
struct Cost {
    place: f64,
    record: f64,
    /// What anybody must do: walk the request, and copy the ids.
    walk: f64,
}

pub(crate) fn measure() {
    for (shape, name) in [(Shape::Line, "line"), (Shape::Tree, "tree")] {
        let rounds: Vec<Vec<Cost>> = (0..ROUNDS).map(|_| conversation(shape)).collect();
        for turn in [10, TURNS] {
            let middle = |of: fn(&Cost) -> f64| {
                median(rounds.iter().map(|round| of(&round[turn - 1])).collect())
            };
            println!(
                "{name}, turn {turn}: place {:.1} us, record {:.1} us; walking the request's messages alone {:.1} us",
                middle(|cost| cost.place),
                middle(|cost| cost.record),
                middle(|cost| cost.walk)
            );
        }
    }
}

fn conversation(shape: Shape) -> Vec<Cost> {
    let rules = Rules {
        matcher: Matcher::Strict,
        append_roles: Some(&["user", "tool"]),
        max_turns: 10_000,
        in_flight: 0,
    };
    let mut forest = Forest::of_shape(shape, 0);
    let mut messages: Vec<Value> = vec![json!({"role": "system", "content": "s".repeat(2_000)})];
    let mut prompt: Vec<u32> = (0..500).collect();
    let mut costs = Vec::new();
    for turn in 0..TURNS {
        messages.push(json!({"role": "tool", "content": format!("{turn} {}", "x".repeat(500)), "tool_call_id": "c"}));
        let body =
            json!({"model": "m", "messages": messages, "tools": ["t".repeat(2_000)]}).to_string();
        prompt.extend(0..100);
        let answer = json!({"role": "assistant", "content": format!("answer {turn}"), "reasoning_content": null,
            "tool_calls": [{"id": "c", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]});
        let response = json!({"id": "r", "choices": [{"message": answer}]})
            .to_string()
            .into_bytes();
        let generation = Generation {
            prompt_ids: prompt.clone(),
            output_ids: (0..OUTPUT).collect(),
            log_probs: vec![-0.5; OUTPUT as usize],
            finish: Some(FinishReason::ToolCalls),
            ..Generation::default()
        };
        prompt.extend(&generation.output_ids);
        let started = Instant::now();
        let spans = message_spans(&body).unwrap();
        let walked = Instant::now();
        let position = forest.prepare(&body, &spans, rules).unwrap();
        let placed = Instant::now();
        let context = TurnContext {
            messages: Some(spans.len()),
            message_spans: &spans,
            request: body.as_bytes(),
            sent_ids: true,
            response,
            ..TurnContext::default()
        };
        forest.commit_at(&position, generation, context).unwrap();
        let recorded = Instant::now();
        assert_eq!(forest.path(forest.head()).len(), turn + 1);
        let microseconds = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e6;
        costs.push(Cost {
            walk: microseconds(started, walked),
            place: microseconds(walked, placed),
            record: microseconds(placed, recorded),
        });
        // As a client writes it again.
        messages.push(json!({"tool_calls": [{"function": {"arguments": "{\"a\": 1}", "name": "f"}, "id": "c", "type": "function"}],
            "content": format!("answer {turn}"), "role": "assistant"}));
    }
    costs
}
