//! Bodies, good and bad, get the status and the words that the validators of SGLang 0.5.23 give them.
//!
//! `validators/verdicts.json` is what those validators said to `validators/bodies.jsonl`; `validators/validators.py` writes it anew.

use serde::Deserialize;
use serde_json::{Value, json};
use sglang_simulator::{Config, Simulator};

use crate::support::{attempt, simulator};

const VERDICTS: &str = include_str!("validators/verdicts.json");

/// What the simulated engine does otherwise: it refuses what it cannot simulate, and servers without a feature refuse it after the validators.
const REFUSED_LATER: [&str; 13] = [
    "beam_width",
    "watermark",
    "lora_path",
    "return_hidden_states",
    "session_params",
    "max_thinking_tokens",
    "routed_dp_rank",
    "structural_tag",
    "tool_choice",
    "(?=a)",
    "\"token_ids_logprob\":[[]]",
    "\"input_ids\":[",
    "\"rid\":[",
];

#[derive(Debug, Deserialize)]
struct Case {
    path: String,
    body: Value,
    verdict: Verdict,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    status: u16,
    /// Of pydantic.
    problems: Option<Vec<String>>,
    /// Of the schema of `/generate`.
    schema: Option<String>,
    /// Of an exception.
    text: Option<String>,
}

/// An engine whose vocabulary is as large as the validators were told.
fn engine() -> Simulator {
    simulator(Config {
        time_scale: 100,
        ..Config::default()
    })
}

/// How an answer departs from a verdict.
async fn difference(engine: &Simulator, case: &Case) -> Option<String> {
    let reply = attempt(engine, &case.path, case.body.clone()).await;
    let shown = case.body.to_string();
    let refused_later = REFUSED_LATER.iter().any(|part| shown.contains(part));
    let Some(reply) = reply else {
        return (!engine.is_dead() || !refused_later).then(|| "no answer".into());
    };
    let (status, verdict) = (reply.status, &case.verdict);
    if status != verdict.status {
        let expected = verdict.status;
        return (!refused_later || expected != 200 || status < 400)
            .then(|| format!("{status} and not {expected}: {}", reply.text));
    }
    let is_native = case.path == "/generate";
    let message = || {
        let answer = reply.json();
        let native = answer["error"]["message"].as_str();
        let message = native.or_else(|| answer["message"].as_str());
        message.unwrap_or_default().to_owned()
    };
    if let Some(schema) = &verdict.schema {
        return (reply.json() != json!({"error": schema})).then(|| reply.text.clone());
    }
    if let Some(problems) = &verdict.problems {
        return unlike(case, problems, &message());
    }
    let Some(text) = &verdict.text else {
        return None;
    };
    let expected = match (status, is_native) {
        (500, true) => return (reply.text != "Internal Server Error").then(|| reply.text.clone()),
        // pydantic runs code of SGLang's that fails before the route begins
        (500, false) if text.ends_with("has no attribute 'get'") => {
            return (reply.text != "Internal Server Error").then(|| reply.text.clone());
        }
        // the words of Python about a pattern are its own
        (500, false) if shown.contains("stop_regex") => return None,
        (500, false) => format!("Internal server error: {text}"),
        _ => text.clone(),
    };
    // the vocabulary's size is that of the tokenizer
    let digits = |text: &str| text.replace("1023", "N").replace("1087", "N");
    (digits(&message()) != digits(&expected)).then(message)
}

/// Whether a message lists other problems. Of content and formats only the first is told in pydantic's words.
fn unlike(case: &Case, problems: &[String], message: &str) -> Option<String> {
    let plain = json!([{"role": "user", "content": "x"}]);
    let is_exact = case.body["response_format"].is_null()
        && case
            .body
            .get("messages")
            .is_none_or(|messages| *messages == plain);
    if is_exact {
        let count = problems.len();
        let noun = if count == 1 { "error" } else { "errors" };
        let head = format!("{count} validation {noun}:\n  {}\n", problems.join("\n  "));
        return (!message.starts_with(&head)).then(|| message.to_owned());
    }
    let first = problems.first()?;
    (!message.contains(first.as_str())).then(|| message.to_owned())
}

#[tokio::test(start_paused = true)]
async fn bodies_are_judged_as_sglang_judges_them() {
    let cases: Vec<Case> = serde_json::from_str(VERDICTS).expect("verdicts");
    assert!(cases.len() > 300);
    let mut differences = Vec::new();
    for case in &cases {
        // a token id outside of the vocabulary ends an engine
        let engine = engine();
        if let Some(difference) = difference(&engine, case).await {
            differences.push(format!(
                "{} {}\n  {:?}\n  {difference}",
                case.path, case.body, case.verdict
            ));
        }
        assert_eq!(engine.state().in_flight, Vec::<String>::new(), "{case:?}");
    }
    let count = differences.len();
    assert!(
        differences.is_empty(),
        "{count} differ:\n{}",
        differences.join("\n")
    );
}
