//! The engines of a local run: simulated ones as child processes, or URLs of engines that run already.

use std::path::{Path, PathBuf};

use rollout_driver::{
    config::{JobSpec, dataset_config},
    dataset::{Cursor, Dataset as Rows, DatasetConfig},
};
use rollout_router::check_engine_urls;
use serde_json::{Value, json};
use sglang_simulator::replies::Conversation;

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

/// The rows that simulated engines can know the answers of, if there are any, as the driver's own reader sees them: what it refuses, rows or
/// a whole file, is its to name, by file, line and column. A prompt in which no user speaks has no answer to know.
pub(super) fn known_rows(spec: &Value, dataset: &Dataset, file: &Path) -> Option<Vec<u8>> {
    let label_key = dataset.label_key.as_ref()?;
    let job = JobSpec::read(spec.clone()).ok()?;
    let config = DatasetConfig {
        slice: None,
        shuffle_seed: None,
        ..dataset_config(&job, Some(file)).ok()?
    };
    let rows = Rows::open(&config).ok()?;
    let mut cursor = Cursor::default();
    let mut known = Vec::new();
    for _ in 0..rows.rows() {
        let Ok(row) = rows.next_group(&mut cursor) else {
            continue;
        };
        if row.label.is_null() || !asks(&row.prompt) {
            continue;
        }
        let row = json!({dataset.prompt_key(): row.prompt, label_key.as_str(): row.label});
        known.extend(row.to_string().into_bytes());
        known.push(b'\n');
    }
    (!known.is_empty()).then_some(known)
}

/// Whether there is something in a prompt that the oracle could know it by.
fn asks(prompt: &Value) -> bool {
    let text = match prompt {
        Value::Array(messages) => {
            let said = Conversation::of_messages(messages).turns;
            let last = said.into_iter().rev().find(|turn| turn.role == "user");
            last.map(|turn| turn.text).unwrap_or_default()
        }
        text => text.as_str().unwrap_or_default().to_owned(),
    };
    !text.trim().is_empty()
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
