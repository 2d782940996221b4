//! A tokenizer other than the built-in one, from a pool of another namespace: its files come over HTTP.

use std::path::Path;

use kube::api::DynamicObject;
use rollout_operator::api::meta;
use rollout_tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

use super::field::{Field, small_engines};
use super::pools::{condition, create, pool};
use crate::api::{client, namespace, objects};

/// The files of the built-in tokenizer, with the ids of two letters exchanged.
pub(super) fn other_files() -> Map<String, Value> {
    let builtin =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/rollout-tokenizer/assets/builtin");
    let mut files = Map::new();
    for entry in std::fs::read_dir(builtin).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        files.insert(name, json!(std::fs::read_to_string(&path).unwrap()));
    }
    let text = files["tokenizer.json"].as_str().unwrap();
    let mut tokenizer: Value = serde_json::from_str(text).unwrap();
    let vocabulary = &mut tokenizer["model"]["vocab"];
    let (one, other) = (vocabulary["x"].clone(), vocabulary["z"].clone());
    vocabulary["x"] = other;
    vocabulary["z"] = one;
    files["tokenizer.json"] = json!(tokenizer.to_string());
    files
}

pub(super) fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text).unwrap()
}

#[tokio::test]
async fn a_job_of_one_turn_has_the_tokens_of_its_pools_tokenizer() {
    const PROMPT: &str = "x z x";
    let files = other_files();
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in &files {
        std::fs::write(directory.path().join(name), text.as_str().unwrap()).unwrap();
    }
    let expected = ids(&Tokenizer::from_dir(directory.path()).unwrap(), PROMPT);
    assert_ne!(expected, ids(&Tokenizer::builtin().unwrap(), PROMPT));

    let far = namespace(&client().await, "tokens-pool").await;
    let field = Field::with("tokens", &["--namespace", &far]).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files", "namespace": far}, "data": files});
    create(&field.client, &map).await;
    let mut spec = small_engines(1, &json!({"timeScale": 4}));
    spec["tokenizer"] = json!({"configMap": {"name": "files"}});
    spec["allowedNamespaces"] = json!([field.namespace]);
    create(&field.client, &pool(&far, "pool", &spec)).await;
    let pools: kube::Api<DynamicObject> = objects(&field.client, &far, meta::POOL_KIND);
    field
        .until("the pool is ready", async || {
            condition(&pools, "pool", "Ready").await == "True/AsExpected"
        })
        .await;
    let job = json!({
        "poolRef": {"name": "pool", "namespace": far},
        "dataset": {"inline": [{"prompt": PROMPT}]},
        "rollout": {"batchSize": 1, "samplesPerPrompt": 2},
    });
    field.job("job", "pool", &job).await;
    field
        .job_becomes("job", "Complete", "True/TargetReached")
        .await;

    let manifest: Value = serde_json::from_str(&field.file("manifest.json").await).unwrap();
    let tokenizer = manifest["tokenizer"].as_str().unwrap();
    assert!(tokenizer.starts_with("sha256 "), "{tokenizer}");
    let file = manifest["steps"][0]["samples"]["file"].as_str().unwrap();
    let samples = field.file(file).await;
    let sample: Value = serde_json::from_str(samples.lines().next().unwrap()).unwrap();
    let tokens: Vec<u32> = serde_json::from_value(sample["tokens"].clone()).unwrap();
    assert_eq!(tokens[..expected.len()], expected, "{sample}");
    field.end().await;
}
