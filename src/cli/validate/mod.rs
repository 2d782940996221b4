//! `rollout-operator validate`: manifests checked offline.
//!
//! Standard output has one line per finding, or one JSON object with `-o json`; standard error has a summary. The exit code is 1 when
//! anything is refused. What is named and not in the files is a note (a cluster may have it), with `--local` an error.

mod contents;

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use crate::api::manifest::{self, Finding, Purpose, Severity};
use crate::api::support::Context;
use crate::cli::printable::printable_line;

/// Checks manifests offline, with the rules of the custom resource definitions and more.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files, directories (their .yaml, .yml and .json files), or - for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How findings are printed.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Checks for `rollout-operator local`, not for a cluster: what the manifests name must be in the files.
    #[arg(long)]
    local: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One line per finding.
    Text,
    /// One JSON object.
    Json,
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args {
        files,
        output,
        local,
    } = args;
    let context = if local {
        Context::Local
    } else {
        Context::Cluster
    };
    // Reading files and evaluating rules blocks; nothing else runs in this process.
    let (objects, findings) = tokio::task::spawn_blocking(move || check(&files, context)).await?;
    match output {
        Format::Text => print_lines(&findings)?,
        Format::Json => print_json(objects, &findings)?,
    }
    let count = |severity| {
        let of = findings
            .iter()
            .filter(|finding| finding.severity == severity);
        of.count()
    };
    let errors = count(Severity::Error);
    talk(&format!(
        "{objects} objects, {errors} errors, {} warnings, {} notes",
        count(Severity::Warning),
        count(Severity::Note)
    ));
    if objects == 0 && errors == 0 {
        anyhow::bail!("no object in these files: nothing was checked");
    }
    Ok(ExitCode::from(u8::from(errors > 0)))
}

fn check(files: &[PathBuf], context: Context) -> (usize, Vec<Finding>) {
    let sources = manifest::read(files);
    let purpose = Purpose {
        context,
        complete: true,
    };
    let mut findings = manifest::examine(&sources, purpose);
    let inside = contents::check(&sources, &findings);
    findings.extend(inside);
    manifest::in_order(&mut findings);
    (sources.documents.len(), findings)
}

fn print_lines(findings: &[Finding]) -> anyhow::Result<()> {
    let mut lines = findings.iter().map(ToString::to_string);
    lines.try_for_each(|line| super::data::line(printable_line(&line)))
}

fn print_json(objects: usize, findings: &[Finding]) -> anyhow::Result<()> {
    super::data::line(format_args!(
        "{:#}",
        json!({"objects": objects, "findings": findings})
    ))
}

#[expect(clippy::print_stderr, reason = "standard error is talk")]
fn talk(line: &str) {
    eprintln!("{line}");
}
