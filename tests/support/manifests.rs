//! Manifests under `tests/fixtures/manifests`, and edits of them.

use std::path::{Path, PathBuf};

use rollout_operator::api::manifest::{self, Sources};
use serde_json::{Map, Value};

/// A folder or file of manifests.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/manifests")
        .join(name)
}

pub(crate) fn read(name: &str) -> Sources {
    manifest::read(&[fixture(name)])
}

/// The objects of a folder or file, which all parse.
pub(crate) fn objects(name: &str) -> Vec<Value> {
    let sources = read(name);
    assert_eq!(sources.findings, [], "{name} has faults");
    sources
        .documents
        .into_iter()
        .map(|document| document.value)
        .collect()
}

/// An edit of an object: each file under `change` has an object and JSON merge patches of it, which are refused or taken as the file's
/// name says.
pub(crate) struct Change {
    pub(crate) file: String,
    pub(crate) old: Value,
    pub(crate) new: Value,
    pub(crate) patch: Value,
}

/// Every edit of every file.
pub(crate) fn changes() -> Vec<Change> {
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
    let mut documents = objects(&format!("change/{file}")).into_iter();
    let old = documents.next().unwrap();
    assert!(documents.len() > 0, "{file} has no edit");
    documents
        .map(|patch| {
            let mut new = old.clone();
            merge(&mut new, &patch);
            Change {
                file: file.to_owned(),
                old: old.clone(),
                new,
                patch,
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
