//! The engines of a local run: simulated ones as child processes, or URLs of engines that run already.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use rollout_router::check_engine_urls;
use serde_json::{Value, json};

use super::{inputs::Inputs, progress::say, service::Spec};
use crate::api::{
    job::Dataset,
    pool::{Replies, SGLangPoolSpec},
};

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

/// The engines that run already: from the command line, else from a pool of external engines. None: they are simulated.
pub(super) fn running(given: &[String], inputs: &Inputs) -> anyhow::Result<Vec<String>> {
    let name = &inputs.pool_name;
    let urls = match &inputs.pool.external {
        _ if !given.is_empty() => given,
        Some(external) if !external.urls.is_empty() => &external.urls,
        Some(_) => anyhow::bail!(
            "pool {name}: the Service of external engines is only known on a cluster; give their URLs with --engine"
        ),
        None => {
            let engine = inputs.pool.engine.as_ref();
            if engine.is_none_or(|engine| engine.simulator.is_none()) {
                say(&format!(
                    "pool {name}: without a cluster its engines are simulated; --engine URL takes real ones"
                ));
            }
            return Ok(Vec::new());
        }
    };
    check_engine_urls(urls)?;
    Ok(urls.to_vec())
}

/// Whether simulated engines of this pool answer from the job's own data set.
pub(super) fn know_the_data_set(pool: &SGLangPoolSpec) -> bool {
    let engine = pool.engine.as_ref();
    let simulator = engine.and_then(|engine| engine.simulator.as_ref());
    match simulator.and_then(|simulator| simulator.replies.as_ref()) {
        None => true,
        Some(Replies {
            oracle,
            script: _,
            lengths,
        }) => {
            let has_another = oracle
                .as_ref()
                .is_some_and(|oracle| oracle.dataset.is_some());
            lengths.is_none() && !has_another
        }
    }
}

/// The rows that simulated engines can know the answers of, if there are any: bad ones are the driver's to name, by file, line and column.
pub(super) fn known_rows(spec: &Dataset, file: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(label_key) = &spec.label_key else {
        return Ok(None);
    };
    let text = fs::read(file).with_context(|| file.display().to_string())?;
    let is_known = |line: &&[u8]| {
        let row: Option<Value> = serde_json::from_slice(line).ok();
        row.is_some_and(|row| {
            let prompt = &row[spec.prompt_key()];
            let has_prompt = prompt.is_string()
                || prompt
                    .as_array()
                    .is_some_and(|messages| !messages.is_empty());
            has_prompt && !row[label_key].is_null()
        })
    };
    let rows: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(is_known).collect();
    Ok((!rows.is_empty()).then(|| rows.join(&b'\n')))
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
        |(path, label)| json!({"path": path, "promptKey": dataset.prompt_key(), "labelKey": label}),
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
        environment: None,
        directory: None,
        log: logs.join(format!("engine-{index}.log")),
        announces: true,
    }
}
