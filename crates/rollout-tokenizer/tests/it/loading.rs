//! Reading a tokenizer from a directory.

use std::error::Error as _;
use std::fs;

use rollout_tokenizer::{Tokenizer, TokenizerError};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::render;

/// A directory with the built-in tokenizer, some of its files changed: a `None` removes the file.
fn directory(changes: &[(&str, Option<&str>)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in Tokenizer::builtin_files() {
        fs::write(directory.path().join(name), text).unwrap();
    }
    for (name, change) in changes {
        let path = directory.path().join(name);
        match change {
            Some(text) => fs::write(path, text).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
    }
    directory
}

fn load(changes: &[(&str, Option<&str>)]) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_dir(directory(changes).path())
}

fn problem(changes: &[(&str, Option<&str>)]) -> String {
    let error = load(changes).unwrap_err();
    assert!(!error.is_callers());
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[test]
fn the_files_of_the_builtin_tokenizer_load_as_the_builtin_tokenizer() {
    let (loaded, builtin) = (load(&[]).unwrap(), Tokenizer::builtin().unwrap());
    let text = "What is 3 + 4?<|im_end|>";
    assert_eq!(loaded.encode(text).unwrap(), builtin.encode(text).unwrap());
    assert_eq!(loaded.eos_ids(), builtin.eos_ids());
}

#[test]
fn a_directory_without_a_tokenizer_is_an_error_that_names_the_file() {
    let text = problem(&[("tokenizer.json", None)]);
    assert!(
        text.contains("tokenizer.json") && text.contains("cannot read"),
        "{text}"
    );
}

#[test]
fn broken_files_are_errors_that_name_the_file() {
    for (name, text, reason) in [
        ("tokenizer.json", "{", "EOF"),
        ("tokenizer_config.json", "{", "EOF"),
        ("generation_config.json", "[]", "map"),
        (
            "generation_config.json",
            r#"{"eos_token_id": "x"}"#,
            "\"x\" is not a token id",
        ),
        (
            "tokenizer_config.json",
            r#"{"added_tokens_decoder": {"x": {"content": "a"}}}"#,
            "\"x\" is not a token id",
        ),
        (
            "tokenizer_config.json",
            r#"{"added_tokens_decoder": {"7": {}}}"#,
            "has no content",
        ),
        (
            "tokenizer_config.json",
            r#"{"added_tokens_decoder": {"7": {"content": "<new>"}}}"#,
            "makes it 1024",
        ),
        ("chat_template.jinja", "{% if %}", "syntax error"),
    ] {
        let shown = problem(&[(name, Some(text))]);
        assert!(shown.contains(reason), "{name}: {shown}");
    }
}

#[test]
fn only_tokenizer_json_is_needed() {
    let tokenizer = load(&[
        ("tokenizer_config.json", None),
        ("chat_template.jinja", None),
        ("generation_config.json", None),
    ])
    .unwrap();
    assert!(!tokenizer.has_chat_template());
    assert!(tokenizer.eos_ids().is_empty());
    let error = render(&tokenizer, &json!([]), &json!({}), false).unwrap_err();
    assert!(matches!(error, TokenizerError::NoChatTemplate));
}

#[test]
fn eos_ids_are_those_of_the_tokenizer_the_generation_config_and_the_model() {
    let tokenizer = load(&[
        (
            "generation_config.json",
            Some(r#"{"eos_token_id": [5, 1017]}"#),
        ),
        ("config.json", Some(r#"{"eos_token_id": 9}"#)),
    ])
    .unwrap();
    assert_eq!(tokenizer.eos_ids(), [1017, 5, 9]);
}

#[test]
fn tokens_that_only_the_configuration_names_are_added() {
    let config = json!({
        "added_tokens_decoder": {"1024": {"content": "<new>", "special": true}, "1025": {"content": "<plain>", "special": false}},
        "extra_special_tokens": ["<extra>"],
        "eos_token": {"content": "<end>"},
    });
    let tokenizer = load(&[
        ("tokenizer_config.json", Some(&config.to_string())),
        ("generation_config.json", None),
    ])
    .unwrap();
    assert_eq!(
        tokenizer.encode("<new><plain><end><extra>").unwrap(),
        [1024, 1025, 1026, 1027]
    );
    assert_eq!(tokenizer.eos_ids(), [1026]);
    assert_eq!(
        tokenizer.decode(&[1024, 1025, 1026, 1027], true).unwrap(),
        "<plain>"
    );
}

#[test]
fn a_length_limit_of_tokenizer_json_does_not_cut() {
    let mut file: Value = serde_json::from_str(Tokenizer::builtin_files()[0].1).unwrap();
    file["truncation"] =
        json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    let tokenizer = load(&[("tokenizer.json", Some(&file.to_string()))]).unwrap();
    assert_eq!(tokenizer.encode("12345").unwrap().len(), 5);
}

#[test]
fn the_template_for_tools_is_used_when_there_are_tools() {
    let config = json!({"chat_template": [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools | length }} tools"},
    ]});
    let tokenizer = load(&[
        ("tokenizer_config.json", Some(&config.to_string())),
        ("chat_template.jinja", None),
    ])
    .unwrap();
    let rendered = |tools: Value| {
        tokenizer
            .apply_chat_template(&rollout_tokenizer::ChatTemplateInput {
                messages: &json!([]),
                tools: Some(&tools),
                add_generation_prompt: false,
                kwargs: &serde_json::Map::new(),
            })
            .unwrap()
    };
    assert_eq!(rendered(json!([])), "plain");
    assert_eq!(rendered(json!([{"name": "a"}])), "1 tools");
}
