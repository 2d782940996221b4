//! Renders equal those of the real jinja2: `renders.json`, made by `renders.py`.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rollout_tokenizer::{ChatTemplateInput, Tokenizer, TokenizerError};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Where minijinja 3.1 is not jinja2. No chat template that we know of needs these; each is checked to differ still.
const KNOWN_DIFFERENCES: [&str; 1] = ["the percent operator on a text"];

#[derive(Deserialize)]
struct Case {
    name: String,
    template: Option<String>,
    messages: Value,
    tools: Option<Value>,
    add_generation_prompt: bool,
    kwargs: Map<String, Value>,
    expected: Expected,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expected {
    Text(String),
    Refused(String),
    /// The name of Python's exception, of which only that there is one can be compared.
    Failed(String),
}

fn actual(case: &Case) -> Result<String, TokenizerError> {
    // 2024-07-26 09:05:03 UTC, as in renders.py.
    let now = UNIX_EPOCH + Duration::from_secs(1_721_984_703);
    let mut tokenizer = Tokenizer::builtin()
        .unwrap()
        .with_clock(Arc::new(move || now));
    if let Some(template) = &case.template {
        tokenizer = tokenizer.with_chat_template(template)?;
    }
    tokenizer.apply_chat_template(&ChatTemplateInput {
        messages: &case.messages,
        tools: case.tools.as_ref(),
        add_generation_prompt: case.add_generation_prompt,
        kwargs: &case.kwargs,
    })
}

#[test]
fn every_render_is_that_of_jinja2() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("renders.json")).unwrap();
    assert!(cases.len() > 100, "the table is cut: {} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let actual = match actual(case) {
            Ok(text) => Expected::Text(text),
            Err(TokenizerError::Refused(message)) => Expected::Refused(message),
            Err(error) => Expected::Failed(error.to_string()),
        };
        let same = match (&actual, &case.expected) {
            (Expected::Failed(_), Expected::Failed(_)) => true,
            (actual, expected) => actual == expected,
        };
        if KNOWN_DIFFERENCES.contains(&case.name.as_str()) {
            assert!(
                !same,
                "{} is the same by now: strike it from the list",
                case.name
            );
        } else if !same {
            wrong.push(format!(
                "{}:\n  jinja2 {:?}\n  here   {actual:?}",
                case.name, case.expected
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} renders differ\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
