//! Guides for job authors: every YAML block is a manifest, or part of a job's spec, and valid as it stands.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const GUIDES: [&str; 2] = ["docs/job.md", "README.md"];

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

/// The YAML blocks of a guide, with the lines that they begin in.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        match &mut open {
            None if line == "```yaml" => open = Some((number + 2, String::new())),
            None => {}
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some((_, block)) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    assert!(open.is_none(), "a block does not end");
    blocks
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

#[test]
fn every_block_is_valid() {
    let mut checked = 0;
    for guide in GUIDES {
        let path = format!("{}/{guide}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("the guide");
        for (line, block) in blocks(&text) {
            let found = errors(&manifest(&block));
            assert_eq!(found, "", "{guide}:{line}");
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked} blocks");
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
    let path = format!("{}/docs/miles-flags.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the table");
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
