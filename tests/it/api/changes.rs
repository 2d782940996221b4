//! Edits of objects: each file has an object and JSON merge patches of it, which are refused or taken as the file's name says.

use rollout_operator::api::validate::validate_update;
use serde_json::{Map, Value};

use super::{fixture, read};

/// An edit of an object.
pub(super) struct Change {
    file: String,
    pub(super) old: Value,
    pub(super) new: Value,
    patch: Value,
}

/// Every edit of every file.
pub(super) fn all() -> Vec<Change> {
    let mut files: Vec<_> = std::fs::read_dir(fixture("change"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    files
        .into_iter()
        .flat_map(|file| changes_of(&file))
        .collect()
}

fn changes_of(file: &str) -> Vec<Change> {
    let sources = read(&format!("change/{file}"));
    assert_eq!(sources.findings, []);
    let mut documents = sources.documents.into_iter();
    let old = documents.next().unwrap().value;
    assert!(documents.len() > 0, "{file} has no edit");
    documents
        .map(|patch| {
            let mut new = old.clone();
            merge(&mut new, &patch.value);
            Change {
                file: file.to_owned(),
                old: old.clone(),
                new,
                patch: patch.value,
            }
        })
        .collect()
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}

#[test]
fn edits_are_refused_or_taken_as_their_file_says() {
    let mut report = Vec::new();
    for change in all() {
        let violations = validate_update(&change.new, &change.old);
        let refused = violations
            .iter()
            .any(rollout_operator::api::validate::Violation::is_error);
        let wanted = change.file.ends_with("-refused.yaml");
        let texts: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert_eq!(
            refused, wanted,
            "{} {} {texts:?}",
            change.file, change.patch
        );
        if refused {
            let patch = &change.patch["spec"];
            report.push(format!(
                "{} {patch}\n    {}",
                change.file,
                texts.join("\n    ")
            ));
        }
    }
    insta::assert_snapshot!("changes", report.join("\n"));
}

#[test]
fn an_object_that_did_not_change_is_taken() {
    for change in all() {
        assert_eq!(
            validate_update(&change.old, &change.old),
            [],
            "{}",
            change.file
        );
    }
}
