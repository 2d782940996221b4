//! What is installed: image, chart, plain manifests. Checked as files here, and on a real cluster by `./test cluster`.

mod chart;
mod gitops;
mod image;
mod manifest;

use std::fs;

use serde_json::Value;

/// A file of the repository.
fn text(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_yaml::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The objects of a file with many.
fn documents(path: &str) -> Vec<Value> {
    use serde::Deserialize;

    let text = text(path);
    let documents = serde_yaml::Deserializer::from_str(&text);
    documents
        .map(|document| Value::deserialize(document).unwrap())
        .filter(|document| !document.is_null())
        .collect()
}
