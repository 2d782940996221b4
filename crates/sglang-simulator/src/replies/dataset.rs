//! The problems that an oracle knows, and which of them a request is about.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::conversation::Conversation;
use crate::config::Dataset;
use crate::{Error, numbers};

/// Bytes of a prompt's beginning by which it is found inside a text.
const FINGERPRINT: usize = 24;

/// Problems by their prompt.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    prompts: Vec<String>,
    labels: Vec<String>,
    exact: HashMap<String, usize>,
    by_fingerprint: HashMap<u64, Vec<usize>>,
    short: Vec<usize>,
}

impl Problems {
    /// Reads a data set. A row that cannot be read is an error with its line.
    pub(crate) fn load(dataset: &Dataset, field: &str) -> Result<Self, Error> {
        let mut problems = Self::default();
        if let Some(path) = &dataset.path {
            problems.read(path, dataset, field)?;
        }
        for (index, pair) in dataset.pairs.iter().enumerate() {
            problems
                .add(&pair.prompt, &pair.label)
                .map_err(|problem| Error::config(format!("{field}.pairs[{index}]"), problem))?;
        }
        if let Some(path) = dataset
            .path
            .as_ref()
            .filter(|_| problems.prompts.is_empty())
        {
            let problem = format!("{} has no row: there is nothing to answer", path.display());
            return Err(Error::config(format!("{field}.path"), problem));
        }
        Ok(problems)
    }

    fn read(&mut self, path: &Path, dataset: &Dataset, field: &str) -> Result<(), Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
            field: format!("{field}.path"),
            path: path.to_owned(),
            source,
        })?;
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            self.read_row(line, dataset).map_err(|problem| {
                Error::config(
                    field,
                    format!("{}:{}: {problem}", path.display(), index + 1),
                )
            })?;
        }
        Ok(())
    }

    fn read_row(&mut self, line: &str, dataset: &Dataset) -> Result<(), String> {
        let row: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let key = |key: &str| {
            row.get(key)
                .ok_or_else(|| format!("there is no key {key:?}"))
        };
        self.add(key(&dataset.prompt_key)?, key(&dataset.label_key)?)
    }

    fn add(&mut self, prompt: &Value, label: &Value) -> Result<(), String> {
        let prompt = match prompt {
            Value::String(text) => text.trim().to_owned(),
            Value::Array(messages) => last_user_text(messages)?,
            _ => return Err("the prompt is neither a text nor messages".into()),
        };
        if prompt.is_empty() {
            return Err("the prompt is empty".into());
        }
        let label = match label {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let index = self.prompts.len();
        match prompt.as_bytes().get(..FINGERPRINT) {
            Some(head) => self
                .by_fingerprint
                .entry(fingerprint(head))
                .or_default()
                .push(index),
            None => self.short.push(index),
        }
        self.exact.insert(prompt.clone(), index);
        self.prompts.push(prompt);
        self.labels.push(label);
        Ok(())
    }

    /// The label of the problem that a conversation is about: its first user message that is a problem, or holds one.
    pub(crate) fn label(&self, conversation: &Conversation) -> Option<&str> {
        let users = || conversation.turns.iter().filter(|turn| turn.role == "user");
        let index = users()
            .find_map(|turn| self.exact.get(turn.text.trim()).copied())
            .or_else(|| users().find_map(|turn| self.inside(&turn.text)))?;
        Some(&self.labels[index])
    }

    /// The longest problem that a text contains.
    fn inside(&self, text: &str) -> Option<usize> {
        let mut best: Option<usize> = None;
        let mut offer = |index: usize| {
            if best.is_none_or(|best| self.prompts[index].len() > self.prompts[best].len()) {
                best = Some(index);
            }
        };
        for (at, head) in text.as_bytes().windows(FINGERPRINT).enumerate() {
            for index in self
                .by_fingerprint
                .get(&fingerprint(head))
                .into_iter()
                .flatten()
            {
                if text.as_bytes()[at..].starts_with(self.prompts[*index].as_bytes()) {
                    offer(*index);
                }
            }
        }
        for index in &self.short {
            if text.contains(&self.prompts[*index]) {
                offer(*index);
            }
        }
        best
    }
}

fn fingerprint(head: &[u8]) -> u64 {
    head.chunks(8).fold(0, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        numbers::mix(hash, u64::from_le_bytes(word))
    })
}

fn last_user_text(messages: &[Value]) -> Result<String, String> {
    let conversation = Conversation::of_messages(messages);
    let last = conversation
        .turns
        .iter()
        .rev()
        .find(|turn| turn.role == "user");
    last.map(|turn| turn.text.trim().to_owned())
        .ok_or_else(|| "the prompt has no user message".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Pair;

    fn problems(pairs: &[(&str, &str)]) -> Problems {
        let pairs = pairs
            .iter()
            .map(|(prompt, label)| Pair {
                prompt: json!(prompt),
                label: json!(label),
            })
            .collect();
        Problems::load(
            &Dataset {
                pairs,
                ..Dataset::default()
            },
            "dataset",
        )
        .unwrap()
    }

    #[test]
    fn a_problem_is_found_by_its_message_and_inside_a_longer_one() {
        let known = problems(&[
            ("What is 2+2?", "4"),
            (
                "A train leaves at noon and arrives at three. How long?",
                "3",
            ),
            (
                "A train leaves at noon and arrives at three. How long? In minutes.",
                "180",
            ),
        ]);
        let about = |text: &str| known.label(&Conversation::of_text(text)).map(str::to_owned);
        assert_eq!(about("What is 2+2?").as_deref(), Some("4"));
        assert_eq!(
            about("Answer briefly. What is 2+2? Thanks.").as_deref(),
            Some("4")
        );
        let long = "Q: A train leaves at noon and arrives at three. How long? In minutes.\nA:";
        assert_eq!(about(long).as_deref(), Some("180"));
        assert_eq!(about("Who are you?"), None);
    }

    #[test]
    fn a_bad_row_names_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("problems.jsonl");
        std::fs::write(
            &file,
            "{\"prompt\": \"a\", \"label\": 1}\n\n{\"prompt\": \"b\"}\n",
        )
        .unwrap();
        let dataset = Dataset {
            path: Some(file),
            ..Dataset::default()
        };
        let error = Problems::load(&dataset, "replies.oracle.dataset")
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("problems.jsonl:3: there is no key \"label\""),
            "{error}"
        );
    }

    #[test]
    fn a_file_without_a_row_is_refused() {
        let dataset = Dataset {
            path: Some("/dev/null".into()),
            ..Dataset::default()
        };
        let error = Problems::load(&dataset, "replies.oracle.dataset").unwrap_err();
        assert_eq!(
            error.to_string(),
            "replies.oracle.dataset.path: /dev/null has no row: there is nothing to answer"
        );
    }
}
