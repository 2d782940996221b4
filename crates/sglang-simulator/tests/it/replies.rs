//! What the model says: oracle, script, lengths; and tool calls through several turns.

use futures_util::future::join_all;
use serde_json::{Value, json};
use sglang_simulator::{
    Config, Dataset, Lengths, Oracle, Pair, Replies, Script, Server, Simulator,
};

use crate::support::{post, simulator};

fn problems() -> Dataset {
    let pairs = [("What is 2 + 2?", 4), ("What is 17 plus 25?", 42)];
    let pairs = pairs.map(|(prompt, label)| Pair {
        prompt: json!(prompt),
        label: json!(label),
    });
    Dataset {
        pairs: pairs.to_vec(),
        ..Dataset::default()
    }
}

fn oracle(correct_percent: u32) -> Simulator {
    let oracle = Oracle {
        correct_percent,
        dataset: problems(),
        ..Oracle::default()
    };
    simulator(Config {
        replies: Replies {
            oracle: Some(oracle),
            ..Replies::default()
        },
        ..Config::default()
    })
}

fn scripted(script: &str) -> Simulator {
    let script = Script {
        inline: Some(script.into()),
        dataset: problems(),
        ..Script::default()
    };
    simulator(Config {
        replies: Replies {
            script: Some(script),
            ..Replies::default()
        },
        ..Config::default()
    })
}

async fn chat(engine: &Simulator, messages: &Value, more: Value) -> Value {
    let mut body = json!({"messages": messages});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    let reply = post(engine, "/v1/chat/completions", body).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()["choices"][0].clone()
}

fn boxed(text: &str) -> &str {
    let (_, rest) = text
        .split_once("\\boxed{")
        .unwrap_or_else(|| panic!("no answer in {text}"));
    rest.split_once('}').unwrap().0
}

#[tokio::test(start_paused = true)]
async fn the_oracle_is_right_as_often_as_it_shall_be() {
    let engine = oracle(30);
    let asked = json!([{"role": "user", "content": "What is 17 plus 25?"}]);
    let answers =
        join_all((0..200).map(|_| chat(&engine, &asked, json!({"max_tokens": 200})))).await;
    let right = answers
        .iter()
        .filter(|answer| boxed(answer["message"]["content"].as_str().unwrap()) == "42")
        .count();
    assert!((40..80).contains(&right), "{right} of 200");
    assert!(
        answers
            .iter()
            .all(|answer| answer["finish_reason"] == "stop" && answer["matched_stop"].is_u64())
    );
}

#[tokio::test(start_paused = true)]
async fn the_oracle_knows_a_problem_by_its_ids_and_answers_a_group_with_different_samples() {
    let engine = oracle(100);
    let ids = engine
        .tokenizer()
        .encode("Solve this. What is 2 + 2?\nThink first.")
        .unwrap();
    let body = json!({"input_ids": ids, "sampling_params": {"max_new_tokens": 200}});
    let replies = join_all((0..8).map(|_| post(&engine, "/generate", body.clone()))).await;
    let mut texts: Vec<String> = replies
        .iter()
        .map(|reply| reply.json()["text"].as_str().unwrap().to_owned())
        .collect();
    assert!(texts.iter().all(|text| boxed(text) == "4"), "{texts:?}");
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 8, "the words before it differ");
    assert_eq!(engine.state().unknown, 0);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_says_the_same_and_an_unknown_problem_is_counted() {
    let body = |seed: u32| json!({"text": "What is 2 + 2?", "sampling_params": {"max_new_tokens": 100, "sampling_seed": seed}});
    let (one, other) = (oracle(50), oracle(50));
    for seed in 0..5 {
        let (a, b) = (
            post(&one, "/generate", body(seed)).await,
            post(&other, "/generate", body(seed)).await,
        );
        assert_eq!(a.json()["output_ids"], b.json()["output_ids"]);
        let again = post(&one, "/generate", body(seed)).await;
        assert_eq!(
            a.json()["output_ids"],
            again.json()["output_ids"],
            "however often it is asked"
        );
    }
    post(
        &one,
        "/generate",
        json!({"text": "Who are you?", "sampling_params": {"max_new_tokens": 5}}),
    )
    .await;
    assert_eq!(one.state().unknown, 1);
}

#[tokio::test(start_paused = true)]
async fn output_ids_are_the_ids_of_the_text() {
    let engine = oracle(100);
    let body = json!({"text": "What is 2 + 2?", "sampling_params": {"max_new_tokens": 200, "no_stop_trim": true, "skip_special_tokens": false}});
    let answer = post(&engine, "/generate", body).await.json();
    let ids: Vec<u32> = serde_json::from_value(answer["output_ids"].clone()).unwrap();
    assert_eq!(
        engine.tokenizer().decode(&ids, false).unwrap(),
        answer["text"].as_str().unwrap()
    );
    assert_eq!(
        answer["meta_info"]["finish_reason"],
        json!({"type": "stop", "matched": ids.last().unwrap()})
    );
    assert_eq!(engine.tokenizer().eos_ids().first(), ids.last());
}

#[tokio::test(start_paused = true)]
async fn lengths_follow_their_distribution() {
    let lengths = Lengths {
        median_tokens: 50,
        sigma_percent: 50,
        tail_percent: 10,
        tail_factor: 20,
    };
    let engine = simulator(Config {
        replies: Replies {
            lengths: Some(lengths),
            ..Replies::default()
        },
        ..Config::default()
    });
    let body = |i: u32| json!({"input_ids": [i, 7], "sampling_params": {"max_new_tokens": 20_000}});
    let replies = join_all((0..300).map(|i| post(&engine, "/generate", body(i)))).await;
    let mut counts: Vec<u64> = replies
        .iter()
        .map(|reply| {
            reply.json()["meta_info"]["completion_tokens"]
                .as_u64()
                .unwrap()
        })
        .collect();
    counts.sort_unstable();
    assert!(
        (40..70).contains(&counts[150]),
        "the median is {}",
        counts[150]
    );
    let stragglers = counts.iter().filter(|count| **count > 400).count();
    assert!((10..60).contains(&stragglers), "{stragglers} stragglers");
}

const CALCULATING_AGENT: &str = r"
- match: 'What is (?<sum>[0-9+ ]+)\?'
  role: user
  reply:
    reasoning_content: I had better compute $sum.
    content: Let me compute.
    tool_calls: [{name: calculator, arguments: {expression: $sum}}]
- role: tool
  after_turns: 1
  reply: {answer: {correctPercent: 100}}
- reply: {content: I do not know.}
";

fn calculator() -> Value {
    json!([{"type": "function", "function": {"name": "calculator", "description": "Computes.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}])
}

#[tokio::test(start_paused = true)]
async fn a_script_drives_an_agent_through_its_turns() {
    let engine = scripted(CALCULATING_AGENT);
    let mut messages = vec![json!({"role": "user", "content": "What is 2 + 2?"})];
    let more = json!({"tools": calculator(), "max_tokens": 300, "return_token_ids": true, "return_prompt_token_ids": true});
    let first = chat(&engine, &json!(messages), more.clone()).await;
    assert_eq!(first["finish_reason"], "tool_calls");
    let call = &first["message"]["tool_calls"][0];
    assert_eq!(call["type"], "function");
    assert_eq!(
        call["function"],
        json!({"name": "calculator", "arguments": "{\"expression\": \"2 + 2\"}"})
    );
    let raw = "<think>\nI had better compute 2 + 2.\n</think>\n\nLet me compute.\n<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"2 + 2\"}}\n</tool_call>";
    let ids: Vec<u32> = serde_json::from_value(first["response_token_ids"].clone()).unwrap();
    assert_eq!(
        engine
            .tokenizer()
            .decode(&ids[..ids.len() - 1], false)
            .unwrap(),
        raw,
        "the ids are those of the model's own form"
    );

    messages.push(first["message"].clone());
    messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "4"}));
    let second = chat(&engine, &json!(messages), more).await;
    assert_eq!(second["finish_reason"], "stop");
    assert_eq!(boxed(second["message"]["content"].as_str().unwrap()), "4");
    let prompt: Vec<u32> = serde_json::from_value(second["prompt_token_ids"].clone()).unwrap();
    let rendered = engine.tokenizer().decode(&prompt, false).unwrap();
    assert!(
        rendered.contains("calculator")
            && rendered.contains("<tool_response>\n4\n</tool_response>"),
        "{rendered}"
    );

    let other = chat(
        &engine,
        &json!([{"role": "user", "content": "Hello!"}]),
        json!({}),
    )
    .await;
    assert_eq!(other["message"]["content"], "I do not know.");
}

#[tokio::test(start_paused = true)]
async fn a_reasoning_parser_parts_the_thoughts() {
    let script = Script {
        inline: Some(CALCULATING_AGENT.into()),
        ..Script::default()
    };
    let engine = simulator(Config {
        replies: Replies {
            script: Some(script),
            ..Replies::default()
        },
        server: Server {
            reasoning_parser: Some("qwen3".into()),
            ..Server::default()
        },
        ..Config::default()
    });
    let messages = json!([{"role": "user", "content": "What is 2 + 2?"}]);
    let answer = chat(
        &engine,
        &messages,
        json!({"tools": calculator(), "return_meta_info": true}),
    )
    .await;
    assert_eq!(
        answer["message"]["reasoning_content"],
        "I had better compute 2 + 2."
    );
    assert_eq!(answer["message"]["content"], "Let me compute.");
    assert!(answer["meta_info"]["reasoning_tokens"].as_u64().unwrap() > 5);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_answer_adds_up_to_the_whole_one() {
    let engine = scripted(CALCULATING_AGENT);
    let messages = json!([{"role": "user", "content": "What is 2 + 2?"}]);
    let whole = chat(&engine, &messages, json!({"tools": calculator()})).await;
    let body = json!({"messages": messages, "tools": calculator(), "stream": true});
    let events = post(&engine, "/v1/chat/completions", body).await.events();
    let deltas: Vec<&Value> = events
        .iter()
        .map(|event| &event["choices"][0]["delta"])
        .collect();
    let content: String = deltas
        .iter()
        .filter_map(|delta| delta["content"].as_str())
        .collect();
    assert_eq!(
        content.trim(),
        whole["message"]["content"].as_str().unwrap()
    );
    let calls: Vec<&Value> = deltas
        .iter()
        .filter_map(|delta| delta["tool_calls"].get(0))
        .collect();
    assert_eq!(calls[0]["function"]["name"], "calculator");
    let arguments: String = calls
        .iter()
        .filter_map(|call| call["function"]["arguments"].as_str())
        .collect();
    assert_eq!(arguments, "{\"expression\": \"2 + 2\"}");
    assert_eq!(
        events.last().unwrap()["choices"][0]["finish_reason"],
        "tool_calls"
    );
}

#[tokio::test(start_paused = true)]
async fn a_forced_tool_is_called_with_arguments_of_its_schema() {
    let engine = simulator(Config::default());
    let messages = json!([{"role": "user", "content": "hi"}]);
    let more = json!({"tools": calculator(), "tool_choice": "required", "max_tokens": 2000});
    let answer = chat(&engine, &messages, more).await;
    assert_eq!(answer["finish_reason"], "tool_calls");
    let arguments = answer["message"]["tool_calls"][0]["function"]["arguments"]
        .as_str()
        .unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert!(arguments["expression"].is_string());
}

#[test]
fn a_bad_script_names_its_rule() {
    let refused = |yaml: &str| {
        let script = Script {
            inline: Some(yaml.into()),
            ..Script::default()
        };
        let config = Config {
            replies: Replies {
                script: Some(script),
                ..Replies::default()
            },
            ..Config::default()
        };
        Simulator::new(config).unwrap_err().to_string()
    };
    assert!(
        refused("- match: '('\n  reply: {content: x}")
            .starts_with("replies.script[0]: match: regex parse error")
    );
    assert_eq!(
        refused("- match: a\n"),
        "replies.script[0]: give exactly one of reply and replies"
    );
    assert!(
        refused("- mach: a\n").starts_with("replies.script[0]: unknown field `mach`"),
        "{}",
        refused("- mach: a\n")
    );
    assert!(refused("a text").starts_with("replies.script: is no list of rules"));
    assert_eq!(refused("[]"), "replies.script: has no rules");
    assert!(
        refused("- match: a\n  reply: {content: ''}")
            .starts_with("replies.script[0]: a reply says nothing"),
    );
}
