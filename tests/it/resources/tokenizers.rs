//! Where tokenizer files are, and who gets them from whom.

use serde_json::{Value, json};

use super::drivers::driver_settings;
use super::{Resource, a_pool, arguments, container, mount, spec_job, volume};
use rollout_operator::resources::revision;

fn pod(pool: &Resource) -> Value {
    let engines = pool.pool_objects().unwrap().engines.unwrap();
    engines.deployment.value["spec"]["template"]["spec"].clone()
}

/// The settings of a job on a pool: where its driver gets the tokenizer.
fn tokenizer(generate: &Value, pool: &Value, namespace: &str) -> (Value, Value) {
    let mut job = spec_job("own-pool");
    job.job.spec["generate"] = generate.clone();
    job.pool = a_pool(pool).pool_spec();
    job.pool_name = "p".to_owned();
    job.pool_namespace = namespace.to_owned();
    let settings = driver_settings(&job);
    (
        settings["tokenizer"].clone(),
        settings["tokenizer_url"].clone(),
    )
}

const SERVED: &str = "http://p-engines.rl.svc.cluster.local:30001/tokenizer";

fn real(more: &Value) -> Value {
    let mut pool = json!({"model": {"path": "Qwen/Qwen3-8B"}, "engine": {"image": "sglang:1"}});
    for (field, value) in more.as_object().unwrap() {
        pool[field] = value.clone();
    }
    pool
}

#[test]
fn drivers_that_make_prompts_get_the_files_from_the_engines_unless_the_pool_names_others() {
    let single = json!({"singleTurn": {}});
    let files = json!({"configMap": {"name": "files"}});
    let simulated = json!({"engine": {"simulator": {}}});
    let mut other_tokens = simulated.clone();
    other_tokens["tokenizer"] = files.clone();
    let in_image = real(&json!({"model": {"path": "/models/qwen3"}}));
    for (pool, namespace, at, url) in [
        (real(&json!({})), "rl", Value::Null, json!(SERVED)),
        (
            real(&json!({"tokenizer": files})),
            "rl",
            json!("/data/tokenizer"),
            Value::Null,
        ),
        (in_image, "rl", Value::Null, Value::Null),
        (simulated.clone(), "rl", json!("builtin"), Value::Null),
        (
            other_tokens.clone(),
            "rl",
            json!("/data/tokenizer"),
            Value::Null,
        ),
        (
            other_tokens,
            "elsewhere",
            Value::Null,
            json!("http://p-engines.elsewhere.svc.cluster.local:30001/tokenizer"),
        ),
        (
            json!({"external": {"urls": ["http://a:1"]}}),
            "rl",
            Value::Null,
            Value::Null,
        ),
    ] {
        assert_eq!(
            tokenizer(&single, &pool, namespace),
            (at, url),
            "{pool} {namespace}"
        );
    }
    // Turns of agents are the engines' to tokenize.
    let function = json!({"function": {"path": "agent.run", "image": "i"}});
    let agentic = json!({"agentic": {"agent": function}});
    assert_eq!(
        tokenizer(&agentic, &real(&json!({})), "rl"),
        (Value::Null, Value::Null)
    );
    assert_eq!(
        tokenizer(&agentic, &simulated, "rl"),
        (json!("builtin"), Value::Null)
    );
}

#[test]
fn a_tokenizer_that_names_no_files_is_as_none() {
    let single = json!({"singleTurn": {}});
    let hub = real(&json!({}));
    let in_image = real(&json!({"model": {"path": "/models/qwen3"}}));
    let simulated = json!({"engine": {"simulator": {}}});
    let external = json!({"external": {"urls": ["http://a:1"]}});
    for pool in [hub, in_image, simulated, external] {
        let mut empty = pool.clone();
        empty["tokenizer"] = json!({});
        for namespace in ["rl", "elsewhere"] {
            let told = tokenizer(&single, &empty, namespace);
            assert_eq!(told, tokenizer(&single, &pool, namespace), "{pool}");
        }
    }
}

#[test]
fn a_simulated_engine_has_the_pools_tokenizer_and_its_sidecar_serves_it() {
    let pool = a_pool(&json!({
        "engine": {"simulator": {}},
        "tokenizer": {"persistentVolumeClaim": {"claimName": "files", "path": "qwen3"}},
    }));
    let pod = pod(&pool);
    for name in ["engine", "sidecar"] {
        let mounted = mount(container(&pod, name), "/etc/rollout/tokenizer");
        assert_eq!(mounted["readOnly"], true, "{name}");
        let volume = volume(&pod, mounted["name"].as_str().unwrap());
        assert_eq!(volume["persistentVolumeClaim"]["claimName"], "files");
    }
    let directory = "--model-dir=/etc/rollout/tokenizer/qwen3";
    assert!(arguments(container(&pod, "sidecar")).contains(&directory));
    let engines = pool.pool_objects().unwrap().engines.unwrap();
    let settings = engines.settings.unwrap().value["data"]["config.json"].clone();
    let settings: Value = serde_json::from_str(settings.as_str().unwrap()).unwrap();
    assert_eq!(
        settings["server"]["tokenizer"],
        "/etc/rollout/tokenizer/qwen3"
    );
}

#[test]
fn engines_restart_for_another_tokenizer_only_where_they_load_it() {
    let revision = |pool: &Value| revision::of_engine(&a_pool(pool).pool_spec());
    let files = json!({"configMap": {"name": "files"}});
    assert_eq!(
        revision(&real(&json!({}))),
        revision(&real(&json!({"tokenizer": files})))
    );
    let simulated = json!({"engine": {"simulator": {}}});
    let mut with_files = simulated.clone();
    with_files["tokenizer"] = files;
    assert_ne!(revision(&simulated), revision(&with_files));
}

#[test]
fn the_sidecar_of_a_real_engine_finds_what_the_engine_downloads_and_its_template() {
    let pool = real(&json!({
        "model": {"path": "Qwen/Qwen3-8B", "revision": "v1"},
        "engine": {"image": "i", "chatTemplate": {"configMapKeyRef": {"name": "t", "key": "chat.jinja"}}},
    }));
    let pod = pod(&a_pool(&pool));
    let sidecar = container(&pod, "sidecar");
    for argument in [
        "--hub-cache=/huggingface/hub",
        "--hub-model=Qwen/Qwen3-8B",
        "--hub-revision=v1",
        "--chat-template=/etc/rollout/chat-template/chat.jinja",
    ] {
        assert!(
            arguments(sidecar).contains(&argument),
            "{argument}: {sidecar}"
        );
    }
    for path in ["/huggingface", "/etc/rollout/chat-template"] {
        assert_eq!(mount(sidecar, path)["readOnly"], true, "{path}");
        assert_eq!(
            mount(sidecar, path)["name"],
            mount(container(&pod, "engine"), path)["name"]
        );
    }
}
