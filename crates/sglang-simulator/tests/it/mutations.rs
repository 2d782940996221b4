//! Two thousand bodies, right and wrong in every field: no panic, no failure that SGLang would not have, nothing left behind.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};
use sglang_simulator::{Config, Simulator};

use crate::support::{attempt, get, simulator};

const BODIES: u64 = 2_000;

const OF_GENERATE: [&str; 29] = [
    "text",
    "input_ids",
    "input_embeds",
    "sampling_params",
    "rid",
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "token_ids_logprob",
    "return_text_in_logprobs",
    "stream",
    "return_prompt_token_ids",
    "priority",
    "return_hidden_states",
    "return_routed_experts",
    "routed_experts_start_len",
    "lora_path",
    "session_params",
    "session_id",
    "custom_logit_processor",
    "image_data",
    "modalities",
    "max_thinking_tokens",
    "extra_key",
    "routing_key",
    "routed_dp_rank",
    "bootstrap_room",
    "custom_labels",
    "watermark",
];

const OF_PARAMS: [&str; 29] = [
    "max_new_tokens",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_new_tokens",
    "n",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "stream_interval",
    "logit_bias",
    "sampling_seed",
    "custom_params",
    "beam_width",
    "watermark",
    "choice",
    "foo",
];

const OF_CHAT: [&str; 45] = [
    "messages",
    "model",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "presence_penalty",
    "response_format",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "user",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "return_hidden_states",
    "return_prompt_token_ids",
    "return_token_ids",
    "return_meta_info",
    "top_k",
    "min_p",
    "min_tokens",
    "regex",
    "ebnf",
    "repetition_penalty",
    "stop_token_ids",
    "stop_regex",
    "no_stop_trim",
    "ignore_eos",
    "continue_final_message",
    "skip_special_tokens",
    "lora_path",
    "session_params",
    "separate_reasoning",
    "chat_template_kwargs",
    "custom_logit_processor",
    "input_ids",
    "rid",
    "watermark",
];

/// Values that are right for some field, and wrong for the others.
fn values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(2),
        json!(-1),
        json!(7),
        json!(64),
        json!(1_000_000),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(0.5),
        json!(1.0),
        json!(-0.5),
        json!(1.5),
        json!(1e300),
        json!(1e-300),
        json!(""),
        json!("hello"),
        json!("5"),
        json!("yes"),
        json!("required"),
        json!("["),
        json!("[a-f]{3}"),
        json!("root ::= \"a\" root | \"b\""),
        json!("{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}"),
        json!([]),
        json!([1, 2, 3]),
        json!([[1, 2], [3]]),
        json!(["a", "b"]),
        json!([true]),
        json!([1.5]),
        json!([null]),
        json!([{}]),
        json!({}),
        json!({"5": 1.5}),
        json!({"5": -100, "6": 100}),
        json!({"a": 1}),
        json!({"id": "x"}),
        json!({"enabled": true}),
        json!({"include_usage": true}),
        json!({"type": "json_object"}),
        json!({"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "boolean"}}}),
        json!({"type": "json_schema"}),
        json!({"type": "function", "function": {"name": "f"}}),
        json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}]),
        json!([{"role": "user", "content": "hi"}]),
        json!([{"role": "assistant", "content": "so", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]),
        json!([{"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "4"}]}]),
    ]
}

struct Bodies {
    random: StdRng,
    values: Vec<Value>,
}

impl Bodies {
    fn changed(&mut self, mut body: Value, names: &[&str]) -> Value {
        for _ in 0..self.random.random_range(0..3) {
            let name = *names.choose(&mut self.random).expect("names");
            let value = self.values.choose(&mut self.random).expect("values");
            body[name] = value.clone();
        }
        body
    }

    fn next(&mut self) -> (&'static str, Value) {
        let brief = json!({"max_new_tokens": self.random.random_range(1..20)});
        match self.random.random_range(0..5) {
            0 => {
                let params = self.changed(brief, &OF_PARAMS);
                (
                    "/generate",
                    json!({"text": "hello", "return_logprob": true, "top_logprobs_num": 2, "sampling_params": params}),
                )
            }
            1 => {
                let params = self.changed(brief.clone(), &OF_PARAMS);
                let params = vec![params, brief];
                (
                    "/generate",
                    json!({"input_ids": [[1, 2, 3], [4]], "sampling_params": params}),
                )
            }
            2 => {
                let body = json!({"input_ids": [5, 6, 7], "sampling_params": brief});
                ("/generate", self.changed(body, &OF_GENERATE))
            }
            _ => {
                let body =
                    json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9});
                ("/v1/chat/completions", self.changed(body, &OF_CHAT))
            }
        }
    }
}

/// Whether SGLang fails at a body with an exception that it does not expect.
pub(crate) fn fails_there(path: &str, body: &Value) -> bool {
    let params = match &body["sampling_params"] {
        Value::Array(list) => list.clone(),
        params => vec![params.clone()],
    };
    let is_no_pattern = |body: &Value| body["stop_regex"] == "[";
    if path != "/generate" {
        let format = &body["response_format"];
        return is_no_pattern(body)
            || format["type"] == "json_schema"
            || !(format.is_null() || format.is_object());
    }
    let is_short = |name: &str| body[name].as_array().is_some_and(|list| list.len() < 3);
    let lists = [
        "sampling_params",
        "return_logprob",
        "logprob_start_len",
        "top_logprobs_num",
        "token_ids_logprob",
    ];
    body["rid"].is_array()
        || lists.into_iter().any(is_short)
        || params.iter().any(|params| {
            let null_n = params.get("n").is_some_and(Value::is_null);
            null_n || params.get("choice").is_some() || is_no_pattern(params)
        })
}

async fn is_idle(engine: &Simulator) -> bool {
    let loads = get(engine, "/v1/loads").await.json();
    let load = &loads["loads"][0];
    let is_zero = |name: &str| load[name] == 0;
    engine.state().in_flight.is_empty()
        && is_zero("num_running_reqs")
        && is_zero("num_waiting_reqs")
}

fn engine() -> Simulator {
    simulator(Config {
        time_scale: 100,
        ..Config::default()
    })
}

#[tokio::test(start_paused = true)]
async fn changed_bodies_leave_nothing_behind() {
    let mut bodies = Bodies {
        random: StdRng::seed_from_u64(0x5eed),
        values: values(),
    };
    let mut simulated = engine();
    let mut seen = Map::new();
    for number in 0..BODIES {
        let (path, body) = bodies.next();
        let reply = attempt(&simulated, path, body.clone()).await;
        if simulated.is_dead() {
            // a token id beyond the vocabulary ends the real one, too
            let ids = body["input_ids"].to_string();
            assert!(
                ids.contains('-') || ids.len() > 4,
                "{number}: {path} {body} ended it"
            );
            simulated = engine();
            continue;
        }
        let status = reply.as_ref().map_or(0, |reply| reply.status);
        let expected = match status {
            200 => true,
            400 => reply.as_ref().is_some_and(|reply| reply.json().is_object()),
            // a stream breaks off after its headers
            500 | 0 => fails_there(path, &body),
            _ => false,
        };
        assert!(expected, "{number}: {path} {body} gave {reply:?}");
        assert!(
            is_idle(&simulated).await,
            "{number}: {path} {body} left something"
        );
        let count = seen.entry(status.to_string()).or_insert_with(|| 0.into());
        *count = (count.as_u64().unwrap_or(0) + 1).into();
    }
    // bodies of every kind were among them
    let seen_of = |status: &str| seen.get(status).and_then(Value::as_u64).unwrap_or(0);
    assert!(
        seen_of("200") > BODIES / 10 && seen_of("400") > BODIES / 10 && seen_of("500") > 0,
        "{seen:?}"
    );
}
