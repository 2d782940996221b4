//! Jobs on a real engine: of a pool that starts it, and of one that knows it as external.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use rollout_operator::api::meta;
use rollout_tokenizer::Tokenizer;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::engine::{Engine, LIMIT, is_ready, model, of_machine, pool};
use crate::api::{client, end, namespace, objects};
use crate::runtime::jobs::place::Place;
use crate::runtime::pools::{condition, create, pool as pool_of};
use crate::runtime::tokenizers::{ids, other_files};

/// Two turns, each in its own words: what the model says makes no sense.
const AGENT: &str = r#"
from miles.utils.http_utils import post

async def run(base_url, prompt, request_kwargs):
    messages = list(prompt)
    for turn in range(2):
        body = {"model": "any", "messages": messages, **request_kwargs}
        reply = (await post(f"{base_url}/v1/chat/completions", body))["choices"][0]
        messages += [reply["message"], {"role": "user", "content": "Go on."}]
    return {"turns": 2}
"#;
const PROMPT: &str = "x z x";

/// The files of a model on a volume.
async fn model_on_a_volume(place: &Place) -> Value {
    let namespace = &place.namespace;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models", "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    create(&place.client, &claim).await;
    let script = "b=/bin/busybox; $b cp -r /from /models/tiny && $b chmod -R a+rX /models/tiny";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "copies", "namespace": namespace},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "it", "image": "localhost/tiny:1", "command": ["/bin/busybox", "sh", "-c", script],
                "volumeMounts": [{"name": "from", "mountPath": "/from", "readOnly": true}, {"name": "models", "mountPath": "/models"}],
            }],
            "volumes": [of_machine("from", &model()), {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        },
    });
    place.run_pod("copies", &pod).await;
    json!({"path": "tiny", "servedName": "tiny", "source": {"persistentVolumeClaim": {"claimName": "models"}}})
}

/// Code of the agents, in a job's namespace.
async fn code(place: &Place) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code", "namespace": place.namespace},
        "data": {"agent.py": AGENT},
    });
    create(&place.client, &map).await;
}

async fn single_turn(place: &Place, job: &str, pool: &Value) {
    let rows = json!({"inline": [{"prompt": PROMPT}, {"prompt": PROMPT}]});
    place
        .job(job, &json!({"poolRef": pool, "dataset": rows}))
        .await;
}

async fn agentic(place: &Place, job: &str, pool: &Value) {
    let agent = json!({"path": "agent.run", "image": "localhost/python:1", "code": {"configMap": {"name": "code"}}});
    let generate = json!({"agentic": {"agent": {"function": agent}}});
    place
        .job(job, &json!({"poolRef": pool, "generate": generate}))
        .await;
}

async fn completes(place: &Place, job: &str) {
    place
        .comes_true(&format!("{job} is complete"), LIMIT, async || {
            condition(&place.jobs, job, "Complete").await == "True/TargetReached"
        })
        .await;
    let status = place.status(job).await;
    assert!(
        status["output"]["samples"].as_i64() >= Some(4),
        "{job}: {status}"
    );
    assert_eq!(status["attempt"], 1, "{job}: {status}");
    place.verify_in(&format!("verify-{job}"), job).await;
}

/// What a job wrote: its manifest, and its rows.
async fn written(place: &Place, job: &str) -> (Value, Vec<Value>) {
    let read = async |name: &str, file: &str| {
        let script = format!("/bin/busybox cat /data/{job}/{file}");
        let command = ["/bin/busybox", "sh", "-c", &script];
        place
            .run(
                &format!("{name}-of-{job}"),
                "localhost/tiny:1",
                &command,
                65532,
            )
            .await
    };
    let manifest = read("manifest", "manifest.json").await;
    let rows = read("rows", "samples-*.jsonl").await;
    let rows = rows.lines().map(|row| serde_json::from_str(row).unwrap());
    (serde_json::from_str(&manifest).unwrap(), rows.collect())
}

/// Every row begins with the prompt, as this tokenizer has it.
async fn has_prompts_of(place: &Place, job: &str, tokenizer: &Tokenizer) -> Value {
    let expected = ids(tokenizer, PROMPT);
    let (manifest, rows) = written(place, job).await;
    assert_eq!(rows.len(), 4, "{job}");
    for row in rows {
        let tokens: Vec<u32> = serde_json::from_value(row["tokens"].clone()).unwrap();
        assert_eq!(tokens[..expected.len()], expected, "{job}: {row}");
        assert!(tokens.len() > expected.len(), "{job}: {row}");
    }
    manifest["tokenizer"].clone()
}

/// Every session had both turns. What a model without training says is seldom tokenized again as it was generated: then a session has two rows.
async fn has_both_turns(place: &Place, job: &str) {
    let sessions = &place.status(job).await["progress"]["sessions"];
    assert_eq!(sessions["infraFailed"], 0, "{job}: {sessions}");
    let mut indexes = BTreeSet::new();
    for row in written(place, job).await.1 {
        assert_eq!(row["metadata"]["turns"], 2, "{job}: {row}");
        indexes.insert(row["index"].as_i64());
    }
    assert_eq!(indexes.len(), 4, "{job}");
}

/// The name that a manifest has for the files of a directory which the driver got from the engines.
fn fetched(directory: &Path) -> String {
    let hex = |data: &[u8]| -> String {
        let digest = Sha256::digest(data);
        digest
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    };
    let mut files = String::new();
    for name in rollout_driver::tokenizer_files::FILES {
        if let Ok(data) = std::fs::read(directory.join(name)) {
            writeln!(files, "{name} {}", hex(&data)).unwrap();
        }
    }
    format!("sha256 {}", hex(files.as_bytes()))
}

/// A pool's own engine: the driver has the tokenizer from its sidecar.
async fn own(place: &Place) {
    let pool = json!({"name": "real"});
    single_turn(place, "single", &pool).await;
    agentic(place, "agentic", &pool).await;
    completes(place, "single").await;
    completes(place, "agentic").await;
    let builtin = Tokenizer::builtin().unwrap();
    let tokenizer = has_prompts_of(place, "single", &builtin).await;
    assert_eq!(tokenizer, fetched(&model()));
    has_both_turns(place, "agentic").await;
}

/// The same engine, which another pool knows as external, and leaves as it is.
async fn external(place: &Place) {
    let before = Engine::of(place, "real").await;
    let pools: Api<DynamicObject> = objects(&place.client, &place.namespace, meta::POOL_KIND);
    let service = json!({"name": "real-engines", "port": 30000});
    let spec = json!({"model": {"path": "other"}, "external": {"service": service}});
    create(&place.client, &pool_of(&place.namespace, "known", &spec)).await;
    let mut status = Value::Null;
    place
        .comes_true("the engine's model is told", LIMIT, async || {
            status = pools.get("known").await.unwrap().data["status"].clone();
            condition(&pools, "known", "Stalled").await == "True/EngineUnsuitable"
        })
        .await;
    assert!(
        status
            .to_string()
            .contains("it serves tiny, spec.model is other"),
        "{status}"
    );
    let patch = Patch::Merge(json!({"spec": {"model": {"path": "tiny"}}}));
    pools
        .patch("known", &PatchParams::default(), &patch)
        .await
        .unwrap();
    is_ready(place, "known").await;
    let status = pools.get("known").await.unwrap().data["status"].clone();
    let engine = &status["engines"][0];
    assert_eq!(engine["version"], "0.5.23", "{status}");
    assert_eq!(engine["weightVersion"], "default", "{status}");
    assert_eq!(engine["paused"], false, "{status}");

    let pool = json!({"name": "known"});
    single_turn(place, "known-single", &pool).await;
    agentic(place, "known-agentic", &pool).await;
    completes(place, "known-single").await;
    completes(place, "known-agentic").await;
    // Nobody gave the driver a tokenizer: the engine tokenized.
    let builtin = Tokenizer::builtin().unwrap();
    let tokenizer = has_prompts_of(place, "known-single", &builtin).await;
    assert_eq!(tokenizer, Value::Null);
    has_both_turns(place, "known-agentic").await;

    pools
        .delete("known", &DeleteParams::foreground())
        .await
        .unwrap();
    place
        .comes_true("the pool is gone", LIMIT, async || {
            pools.get_opt("known").await.unwrap().is_none()
        })
        .await;
    let after = Engine::of(place, "real").await;
    assert_eq!(after, before);
    assert_eq!(after.generate("One?", 4).await.len(), 4);
}

/// Files that the pool names stand for the engine's, whose process goes on.
async fn named_files(place: &Place) {
    let before = Engine::of(place, "real").await;
    let files = other_files();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files", "namespace": place.namespace},
        "data": files,
    });
    create(&place.client, &map).await;
    name_tokenizer(
        place,
        &place.namespace,
        json!({"configMap": {"name": "files"}}),
    )
    .await;
    single_turn(place, "named", &json!({"name": "real"})).await;
    completes(place, "named").await;
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in &files {
        std::fs::write(directory.path().join(name), text.as_str().unwrap()).unwrap();
    }
    let other = Tokenizer::from_dir(directory.path()).unwrap();
    assert_ne!(
        ids(&other, PROMPT),
        ids(&Tokenizer::builtin().unwrap(), PROMPT)
    );
    let tokenizer = has_prompts_of(place, "named", &other).await;
    assert_eq!(tokenizer, "directory tokenizer");
    assert_eq!(Engine::of(place, "real").await, before);
}

async fn name_tokenizer(place: &Place, namespace: &str, files: Value) {
    let pools: Api<DynamicObject> = objects(&place.client, namespace, meta::POOL_KIND);
    let patch = Patch::Merge(json!({"spec": {"tokenizer": files}}));
    pools
        .patch("real", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Jobs of another namespace. Files of the pool's namespace are out of their reach, those of the engine are not.
async fn far(place: &Place, home: &str) {
    let pool = json!({"name": "real", "namespace": home});
    code(place).await;
    single_turn(place, "far-single", &pool).await;
    agentic(place, "far-agentic", &pool).await;
    place
        .becomes("far-single", "Stalled", "True/NotSupported")
        .await;
    let said = place.said("far-single", "Stalled").await;
    assert!(said.contains("tokenizer files"), "{said}");
    completes(place, "far-agentic").await;
    has_both_turns(place, "far-agentic").await;
    name_tokenizer(place, home, Value::Null).await;
    completes(place, "far-single").await;
    let builtin = Tokenizer::builtin().unwrap();
    let tokenizer = has_prompts_of(place, "far-single", &builtin).await;
    assert_eq!(tokenizer, fetched(&model()));
}

#[tokio::test]
async fn jobs_on_one_engine_of_their_pool_of_an_external_one_and_of_another_namespace() {
    let other = namespace(&client().await, "sglang-far").await;
    let place = Place::without_pool("sglang", &[&other]).await;
    let home = place.namespace.clone();
    let mut spec = pool(&model_on_a_volume(&place).await);
    spec["allowedNamespaces"] = json!([other]);
    // The drivers of the pool that knows the engine as external.
    spec["networkPolicy"] = json!({"allowFrom": [{"podSelector": {}}]});
    create(&place.client, &pool_of(&home, "real", &spec)).await;
    code(&place).await;
    is_ready(&place, "real").await;
    own(&place).await;
    external(&place).await;
    named_files(&place).await;
    let engine = Engine::of(&place, "real").await;
    assert_eq!(engine.life.1, 0, "the engine's container started again");
    let place = place.moved_to(&other).await;
    far(&place, &home).await;
    let client = place.client.clone();
    place.end().await;
    end(client, &home).await;
}
