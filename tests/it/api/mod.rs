//! The two resource types: their definitions, their rules, and what is said about files that break them.

mod changes;
mod command_line;
mod contents;
mod coverage;
mod defaults;
mod definitions;
mod loading;
mod names;
mod robustness;
mod scalars;
mod texts;

use std::path::{Path, PathBuf};

use rollout_operator::api::manifest::{self, Finding, Purpose, Sources};
use rollout_operator::api::support::Context;
use serde_json::Value;

/// A folder or file of manifests.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/manifests")
        .join(name)
}

fn read(name: &str) -> Sources {
    manifest::read(&[fixture(name)])
}

/// The objects of a folder or file, which all parse.
fn objects(name: &str) -> Vec<Value> {
    let sources = read(name);
    assert_eq!(sources.findings, [], "{name} has faults");
    sources
        .documents
        .into_iter()
        .map(|document| document.value)
        .collect()
}

fn findings(name: &str, context: Context) -> Vec<Finding> {
    let sources = read(name);
    let purpose = Purpose {
        context,
        complete: true,
    };
    manifest::examine(&sources, purpose)
}

/// Findings as lines, with the paths of files made short.
fn lines(findings: &[Finding]) -> String {
    let root = format!("{}/", fixture("").display());
    let root = root.replace("//", "/");
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| finding.to_string().replace(&root, ""))
        .collect();
    lines.join("\n")
}
