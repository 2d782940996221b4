//! Texts: every template over every conversation.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rollout_tokenizer::{ChatTemplate, Json, RenderInput, TokenizerError};

/// 2025-03-09 08:05:07, what the reference renders at.
const NOW: u64 = 1_741_507_507;

fn folder(variable: &str) -> PathBuf {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} is not set: run ./test templates"))
        .into()
}

struct Conversation {
    json: Json,
}

impl Conversation {
    fn flag(&self, name: &str) -> bool {
        self.json.get(name) == Some(&Json::Bool(true))
    }

    fn rendered(&self, template: &ChatTemplate) -> Result<String, TokenizerError> {
        let kwargs: Vec<(&str, Json)> = self
            .json
            .get("kwargs")
            .and_then(Json::as_object)
            .unwrap()
            .iter()
            .map(|(name, value)| (&**name, value.clone()))
            .collect();
        template.render(&RenderInput {
            messages: self.json.get("messages").and_then(Json::as_array).unwrap(),
            tools: self.json.get("tools").filter(|tools| !tools.is_null()),
            add_generation_prompt: self.flag("add_generation_prompt"),
            continue_final_message: self.flag("continue_final_message"),
            kwargs: &kwargs,
        })
    }
}

fn lines(path: &Path) -> Vec<Json> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.split_terminator('\n')
        .map(|line| Json::parse(line).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}

/// What is different, in a word, or nothing.
fn difference(expected: &Json, actual: &Result<String, TokenizerError>) -> Option<String> {
    let field = |name| expected.get(name).and_then(Json::as_str);
    match (field("text"), actual) {
        (Some(expected), Ok(actual)) if expected == actual => None,
        (Some(expected), Ok(actual)) => {
            let at = expected
                .char_indices()
                .zip(actual.chars())
                .find(|((_, left), right)| left != right)
                .map_or(expected.len().min(actual.len()), |((at, _), _)| at);
            let around = |text: &str| {
                let start = (0..=at.saturating_sub(30)).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
                text[start..].chars().take(90).collect::<String>()
            };
            Some(format!("text: expected {:?} got {:?}", around(expected), around(actual)))
        }
        (Some(_), Err(error)) => Some(format!("raised {error}")),
        (None, Ok(_)) => Some(format!(
            "did not raise {}: {}",
            field("error").unwrap(),
            field("message").unwrap()
        )),
        (None, Err(TokenizerError::Refused(message))) if field("error") == Some("TemplateError") => {
            (field("message") != Some(message)).then(|| format!("message: expected {:?} got {message:?}", field("message")))
        }
        (None, Err(TokenizerError::Refused(message))) => Some(format!("refused: {message}")),
        (None, Err(TokenizerError::Continue(message))) => {
            (field("message") != Some(message)).then(|| format!("message: expected {:?} got {message:?}", field("message")))
        }
        (None, Err(_)) => (field("error") == Some("TemplateError")).then(|| "raised in another place".into()),
    }
}

#[test]
fn every_template_renders_as_transformers_renders_it() {
    let templates = folder("ROLLOUT_TEMPLATES");
    let renders = folder("ROLLOUT_TEMPLATE_RENDERS");
    let conversations: Vec<Conversation> = lines(&renders.join("conversations.jsonl"))
        .into_iter()
        .map(|json| Conversation { json })
        .collect();
    let mut paths: Vec<PathBuf> = fs::read_dir(&templates)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "jinja"))
        .collect();
    paths.sort();
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    let mut all = BTreeMap::new();
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let expected = lines(&renders.join(format!("{name}.jsonl")));
        assert_eq!(expected.len(), conversations.len());
        let template = match ChatTemplate::new(&fs::read_to_string(&path).unwrap()) {
            Ok(template) => template.with_clock(Arc::new(move || now)),
            Err(error) => {
                println!("{name}: {error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
                continue;
            }
        };
        let mut different = Vec::new();
        for (number, (conversation, expected)) in conversations.iter().zip(&expected).enumerate() {
            if let Some(difference) = difference(expected, &conversation.rendered(&template)) {
                different.push((number, difference));
            }
        }
        if !different.is_empty() {
            println!("{name}: {} differ", different.len());
            for (number, difference) in different.iter().take(6) {
                println!("   {number}: {difference}");
            }
            all.insert(name, different.len());
        }
    }
    println!("{} templates differ, {} renders", all.len(), all.values().sum::<usize>());
    assert!(all.is_empty());
}
