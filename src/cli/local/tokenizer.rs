//! Who tokenizes the prompts of a single-turn job, and what follows when it is not us. Pure but for looking for the file.

use std::path::{Path, PathBuf};

use crate::api::job::RolloutJobSpec;

/// A reason why prompts cannot be tokenized.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenizerError {
    #[error(
        "--tokenizer {directory}: there is no tokenizer.json in it; give the directory with the model's tokenizer files", directory = .0.display()
    )]
    NoFile(PathBuf),
    #[error(
        "spec.dataset.applyChatTemplate: with engines that run already the template of their model is needed: give --tokenizer DIR, the directory with the model's tokenizer.json and chat template"
    )]
    NoTemplate,
}

/// Whether `directory` can hold a tokenizer.
pub(super) fn check(directory: &Path) -> Result<(), TokenizerError> {
    if directory.join("tokenizer.json").is_file() {
        return Ok(());
    }
    Err(TokenizerError::NoFile(directory.to_owned()))
}

/// What is to be said when engines that run already get the prompts of a job, and no tokenizer was given.
pub(super) fn without(spec: &RolloutJobSpec) -> Result<Option<&'static str>, TokenizerError> {
    if spec.generate.single_turn.is_none() {
        return Ok(None);
    }
    if spec.dataset.apply_chat_template {
        return Err(TokenizerError::NoTemplate);
    }
    Ok(Some(
        "no --tokenizer: the engines tokenize the prompts, each as the text that it is; rows whose prompt is a list of messages fail, they need --tokenizer DIR",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(generate: &serde_json::Value, template: bool) -> RolloutJobSpec {
        serde_json::from_value(json!({
            "rollout": {"batchSize": 1}, "generate": generate, "output": {}, "dataset": {"inline": [], "applyChatTemplate": template},
        }))
        .unwrap()
    }

    #[test]
    fn what_follows_without_a_tokenizer_is_said_or_refused() {
        let single = json!({"singleTurn": {}});
        let said = without(&spec(&single, false)).unwrap().unwrap();
        assert!(said.contains("the engines tokenize the prompts"), "{said}");
        assert_eq!(
            without(&spec(&single, true)),
            Err(TokenizerError::NoTemplate)
        );
        assert_eq!(without(&spec(&json!({}), false)), Ok(None));
    }
}
