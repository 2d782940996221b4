//! Guides for job authors: every YAML block is a manifest, or part of a job's spec, and valid as it stands.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sglang_simulator::{Config, Script, Simulator};

use super::{Document, document, documents};

/// The page about the simulated engine: its first block is the configuration of one, the others are scripts.
const ENGINE: &str = "docs/simulated-engine.md";

/// A job that the parts of a spec are put into; rows for agents and for single turns alike.
fn job() -> Value {
    json!({
        "apiVersion": "rollout-operator.dev/v1alpha1", "kind": "RolloutJob", "metadata": {"name": "guide"},
        "spec": {
            "pool": {"engine": {"simulator": {}}},
            "dataset": {"inline": [{"prompt": [{"role": "user", "content": "1 + 1?"}], "label": "2"}], "labelKey": "label"},
            "rollout": {"batchSize": 1},
            "sampling": {"maxNewTokens": 64},
            "generate": {"singleTurn": {}},
            "output": {"persistentVolumeClaim": {"claimName": "samples"}},
        },
    })
}

fn manifest(block: &str) -> String {
    if block.contains("apiVersion:") {
        return block.to_owned();
    }
    let part: Value = serde_yaml::from_str(block).expect("YAML");
    let mut job = job();
    for (name, value) in part.as_object().expect("parts of a spec") {
        job["spec"][name] = value.clone();
    }
    job.to_string()
}

fn errors(manifest: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rollout-operator"))
        .args(["validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command runs");
    let input = child.stdin.take();
    let written = input.expect("its input").write_all(manifest.as_bytes());
    written.expect("the command reads its input");
    let output = child.wait_with_output().expect("the command ends");
    let said = String::from_utf8(output.stdout).expect("text");
    // What other objects a part names is not the guide's to show.
    assert!(output.status.success(), "{said}");
    let wrong = said.lines().filter(|line| !line.contains(": note: "));
    wrong.collect::<Vec<_>>().join("\n")
}

fn yaml(document: &Document) -> Vec<(usize, String)> {
    let blocks = document.blocks().into_iter();
    let yaml = blocks.filter(|block| block.language == "yaml");
    yaml.map(|block| (block.line, block.text)).collect()
}

#[test]
fn every_block_is_valid() {
    let mut checked = 0;
    for page in documents() {
        if page.path.to_str() == Some(ENGINE) {
            continue;
        }
        for (line, block) in yaml(&page) {
            let found = errors(&manifest(&block));
            assert_eq!(found, "", "{}:{line}", page.path.display());
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked} blocks");
}

#[test]
fn the_simulated_engine_takes_what_its_page_shows() {
    let mut blocks = yaml(&document(ENGINE)).into_iter();
    let (_, configuration) = blocks.next().expect("a configuration");
    let mut engine: Value = serde_yaml::from_str(&configuration).expect("YAML");
    let server = engine
        .as_object_mut()
        .and_then(|engine| engine.remove("server"));
    // Of a pool, all but the server is the same; with `server` it is what the command reads, but for a tokenizer that is the reader's.
    let pool = json!({
        "apiVersion": "rollout-operator.dev/v1alpha1", "kind": "SGLangPool", "metadata": {"name": "page"},
        "spec": {"engine": {"simulator": engine}},
    });
    assert_eq!(errors(&pool.to_string()), "");
    let mut server = server.expect("a server");
    server
        .as_object_mut()
        .and_then(|server| server.remove("tokenizer"));
    engine["server"] = server;
    let config: Config = serde_json::from_value(engine).expect("a configuration");
    Simulator::new(config).expect("an engine");
    for (line, script) in blocks {
        let script = Script {
            inline: Some(script),
            ..Script::default()
        };
        let mut config = Config::default();
        config.replies.script = Some(script);
        let engine = Simulator::new(config);
        assert!(engine.is_ok(), "{ENGINE}:{line}: {:?}", engine.err());
    }
}

/// Fields that a table names in code: a path with a dot or of the top level, in a job or (after `pool:`) in a pool.
fn named_fields(line: &str) -> Vec<(bool, String)> {
    let cell = line.split('|').nth(2).unwrap_or_default();
    let words = cell.split('`').skip(1).step_by(2);
    words
        .map(|word| match word.strip_prefix("pool: ") {
            Some(field) => (true, field),
            None => (false, word),
        })
        .filter(|(of_pool, word)| {
            *of_pool
                || word.contains('.') && *word != "manifest.json" && !word.starts_with("external.")
        })
        // `field: Value` sets a field.
        .map(|(of_pool, word)| (of_pool, word.split(": ").next().unwrap_or(word).to_owned()))
        .collect()
}

#[test]
fn every_field_of_the_table_of_flags_is_there() {
    let definitions = [
        rollout_operator::api::crd::job(),
        rollout_operator::api::crd::pool(),
    ];
    let text = document("docs/miles-flags.md").text;
    let rows = text.lines().filter(|line| line.starts_with("| `--"));
    let fields: Vec<_> = rows.flat_map(named_fields).collect();
    assert!(fields.len() > 60, "{}", fields.len());
    for (of_pool, field) in fields {
        let root = rollout_operator::api::crd::schema(&definitions[usize::from(of_pool)]);
        let found = field
            .split('.')
            .fold(&root["properties"]["spec"], |schema, name| {
                let (name, is_list) = match name.strip_suffix("[]") {
                    Some(name) => (name, true),
                    None => (name, false),
                };
                let member = &schema["properties"][name];
                if is_list { &member["items"] } else { member }
            });
        assert!(found.is_object(), "{field} is no field");
    }
}
