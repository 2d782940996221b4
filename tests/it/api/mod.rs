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

use rollout_operator::api::manifest::{self, Finding, Purpose};
use rollout_operator::api::support::Context;

use crate::manifests::{fixture, read};

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
