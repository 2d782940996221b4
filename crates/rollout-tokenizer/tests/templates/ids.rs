//! Ids: every tokenizer over the renders of one template.

use std::fs;

use rollout_tokenizer::{Json, Tokenizer};

use crate::{folder, lines};

const TOKENIZERS: &str = include_str!("../../../../tests/templates/tokenizers.txt");

fn check(name: &str, template: &str) -> Result<usize, String> {
    let tokenizer = Tokenizer::from_dir(&folder("ROLLOUT_TOKENIZERS").join(name))
        .map_err(|error| format!("{name}: {error}"))?;
    let ids = folder("ROLLOUT_TEMPLATE_IDS").join(format!("{name}.ids"));
    let expected = fs::read_to_string(&ids).unwrap();
    let renders = lines(&folder("ROLLOUT_TEMPLATE_RENDERS").join(format!("{template}.jsonl")));
    let texts: Vec<&str> = renders
        .iter()
        .filter_map(|render| render.get("text").and_then(Json::as_str))
        .collect();
    assert_eq!(texts.len(), expected.lines().count(), "{name}");
    let mut wrong = Vec::new();
    for (text, expected) in texts.iter().zip(expected.lines()) {
        let expected: Vec<u32> = expected
            .split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect();
        let actual = tokenizer.encode(text).map_err(|error| error.to_string())?;
        if actual != expected {
            let at = actual
                .iter()
                .zip(&expected)
                .take_while(|(a, b)| a == b)
                .count();
            let some = |ids: &[u32]| {
                let ids = &ids[at.min(ids.len())..(at + 8).min(ids.len())];
                (
                    ids.to_vec(),
                    tokenizer.decode(ids, false).unwrap_or_default(),
                )
            };
            wrong.push(format!(
                "  at {at}: expected {:?} got {:?}",
                some(&expected),
                some(&actual)
            ));
        }
    }
    if wrong.is_empty() {
        return Ok(texts.len());
    }
    wrong.truncate(5);
    Err(format!(
        "{name}: of {} texts differ\n{}",
        texts.len(),
        wrong.join("\n")
    ))
}

#[test]
fn every_tokenizer_encodes_as_transformers_encodes() {
    let tokenizers: Vec<(&str, &str)> = TOKENIZERS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            words.next().zip(words.next())
        })
        .collect();
    assert!(tokenizers.len() >= 8, "the list of tokenizers is cut");
    let wrong: Vec<String> = tokenizers
        .iter()
        .filter_map(|(name, template)| match check(name, template) {
            Ok(count) => {
                assert!(count > 100, "{name}: only {count} texts to compare");
                None
            }
            Err(wrong) => Some(wrong),
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
