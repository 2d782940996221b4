//! The engines of a local run: simulated ones as child processes, or URLs of engines that run already.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{inputs::Inputs, service::Spec};

/// Two engines of one pool must not answer alike.
const SEED_STEP: u64 = 1_000_003;

/// Files that simulated engines read.
#[derive(Debug, Clone)]
pub(super) struct EngineFiles {
    /// The rows of the job's data set that can be answered, if there are any.
    pub(super) dataset: Option<PathBuf>,
    /// Data set of the oracle, when it is not the job's.
    pub(super) oracle_dataset: Option<PathBuf>,
    /// Script of the replies.
    pub(super) script: Option<PathBuf>,
}

/// The configuration of one simulated engine (`rollout-operator simulate-engine --config`).
///
/// A pool without a `simulator` gets the defaults, and one that says nothing about replies knows the job's data set and answers right half
/// of the time, so that a first try has rewards to filter on.
pub(super) fn simulator_config(inputs: &Inputs, files: &EngineFiles, index: u64) -> Value {
    let engine = inputs.pool.engine.as_ref();
    let simulator = engine.and_then(|engine| engine.simulator.as_ref());
    let mut config = simulator.map_or_else(
        || json!({}),
        |simulator| serde_json::to_value(simulator).unwrap_or_default(),
    );
    let seed = config["seed"].as_u64().unwrap_or(0);
    config["seed"] = json!(seed.wrapping_add(index.wrapping_mul(SEED_STEP)));
    config["replies"] = replies(inputs, files, config.get("replies"));
    let model = inputs.pool.model.as_ref();
    let path = model.map_or("simulated", |model| model.path.as_str());
    let mut server = json!({"modelPath": path, "servedModelName": model.and_then(|model| model.served_name.as_deref()).unwrap_or("default")});
    if let Some(engine) = engine {
        if let Some(length) = engine.context_length {
            server["contextLength"] = json!(length);
        }
        for (name, parser) in [
            ("toolCallParser", &engine.tool_call_parser),
            ("reasoningParser", &engine.reasoning_parser),
        ] {
            if let Some(parser) = parser {
                server[name] = json!(parser);
            }
        }
    }
    config["server"] = server;
    config
}

fn replies(inputs: &Inputs, files: &EngineFiles, given: Option<&Value>) -> Value {
    let dataset = &inputs.spec.dataset;
    let known = files.dataset.as_ref().zip(dataset.label_key.as_ref());
    let own = known.map(
        |(path, label)| json!({"path": path, "promptKey": dataset.prompt_key.as_deref().unwrap_or("prompt"), "labelKey": label}),
    );
    let mut replies = match given {
        Some(Value::Object(given)) if !given.is_empty() => Value::Object(given.clone()),
        _ if own.is_some() => json!({"oracle": {}}),
        _ => return json!({}),
    };
    if let Some(oracle) = replies.get_mut("oracle").and_then(Value::as_object_mut) {
        let foreign = oracle.get("dataset").cloned();
        oracle.remove("dataset");
        match (&files.oracle_dataset, foreign, own.clone()) {
            (Some(path), Some(foreign), _) => {
                let key = |name: &str, default: &str| {
                    foreign[name].as_str().unwrap_or(default).to_owned()
                };
                let dataset = json!({"path": path, "promptKey": key("promptKey", "prompt"), "labelKey": key("labelKey", "label")});
                oracle.insert("dataset".to_owned(), dataset);
            }
            (_, _, Some(own)) => drop(oracle.insert("dataset".to_owned(), own)),
            _ => {}
        }
    }
    if let (Some(script), Some(path)) = (replies.get_mut("script"), &files.script) {
        *script = json!({"path": path});
        if let Some(own) = own {
            script["dataset"] = own;
        }
    }
    replies
}

/// The command of one simulated engine. After a restart it takes its old port again: routers know it by that.
pub(super) fn simulator_spec(
    program: &Path,
    index: usize,
    config: &Path,
    logs: &Path,
    announced: &Value,
) -> Spec {
    let port = announced["url"]
        .as_str()
        .and_then(|url| url.rsplit(':').next())
        .unwrap_or("0");
    let config = config.display().to_string();
    let args = [
        "simulate-engine",
        "--exit-with-stdin",
        "--config",
        &config,
        "--port",
        port.trim_end_matches('/'),
    ];
    Spec {
        name: format!("engine {index}"),
        program: program.to_owned(),
        args: args.map(str::to_owned).to_vec(),
        first_line: None,
        log: logs.join(format!("engine-{index}.log")),
        announces: true,
    }
}
