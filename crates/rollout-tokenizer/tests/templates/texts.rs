//! Texts: every template over every conversation.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use rollout_tokenizer::{ChatTemplate, Json, RenderInput, TokenizerError};

use crate::{folder, lines};

/// 2025-03-09 08:05:07, what the reference renders at.
const NOW: u64 = 1_741_507_507;

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
                let start = (0..=at.saturating_sub(30))
                    .rev()
                    .find(|i| text.is_char_boundary(*i))
                    .unwrap_or(0);
                text[start..].chars().take(90).collect::<String>()
            };
            Some(format!(
                "text: expected {:?} got {:?}",
                around(expected),
                around(actual)
            ))
        }
        (Some(_), Err(error)) => Some(format!("raised {error}")),
        (None, Ok(_)) => Some(format!(
            "did not raise {}: {}",
            field("error").unwrap(),
            field("message").unwrap()
        )),
        (None, Err(TokenizerError::Refused(message)))
            if field("error") == Some("TemplateError") =>
        {
            (field("message") != Some(message))
                .then(|| format!("message: expected {:?} got {message:?}", field("message")))
        }
        (None, Err(TokenizerError::Refused(message))) => Some(format!("refused: {message}")),
        (None, Err(TokenizerError::Continue(message))) => (field("message") != Some(message))
            .then(|| format!("message: expected {:?} got {message:?}", field("message"))),
        (None, Err(_)) => {
            (field("error") == Some("TemplateError")).then(|| "raised in another place".into())
        }
    }
}

/// The first differences of one template, or nothing.
fn differences(path: &Path, conversations: &[Conversation]) -> Option<String> {
    let name = path.file_stem()?.to_str()?;
    let expected = lines(&folder("ROLLOUT_TEMPLATE_RENDERS").join(format!("{name}.jsonl")));
    assert_eq!(expected.len(), conversations.len());
    let template = match ChatTemplate::new(&fs::read_to_string(path).unwrap()) {
        Ok(template) => {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
            template.with_clock(Arc::new(move || now))
        }
        Err(error) => return Some(format!("{name}: {error}")),
    };
    let different: Vec<String> = conversations
        .iter()
        .zip(&expected)
        .enumerate()
        .filter_map(|(number, (conversation, expected))| {
            let difference = difference(expected, &conversation.rendered(&template))?;
            Some(format!("  {number}: {difference}"))
        })
        .collect();
    (!different.is_empty()).then(|| {
        format!(
            "{name}: {} differ\n{}",
            different.len(),
            different[..different.len().min(5)].join("\n")
        )
    })
}

#[test]
fn every_template_renders_as_transformers_renders_it() {
    let conversations: Vec<Conversation> =
        lines(&folder("ROLLOUT_TEMPLATE_RENDERS").join("conversations.jsonl"))
            .into_iter()
            .map(|json| Conversation { json })
            .collect();
    assert!(conversations.len() >= 500, "only {}", conversations.len());
    let mut paths: Vec<PathBuf> = fs::read_dir(folder("ROLLOUT_TEMPLATES"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "jinja"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 70, "only {} templates", paths.len());
    let next = AtomicUsize::new(0);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut wrong = Vec::new();
                    while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                        wrong.extend(differences(path, &conversations));
                    }
                    wrong
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
