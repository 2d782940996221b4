//! `rollout-operator samples verify`.

use std::io::Write;
use std::process::ExitCode;

use rollout_driver::output::{self, Report};

use super::nothing;
use super::{Format, VerifyArgs};
use crate::cli::printable::printable;

pub(super) fn run(args: &VerifyArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let report = output::verify(&args.directory, args.limit)?;
    match args.format {
        Format::Json => {
            serde_json::to_writer(&mut *out, &report).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
        Format::Text => out.write_all(printable(&text(&report)).as_bytes())?,
    }
    out.flush()?;
    Ok(if report.is_sound() && nothing_kept(&report).is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Why there is nothing to check, if there is nothing.
fn nothing_kept(report: &Report) -> Option<String> {
    let is_empty = report.steps.iter().all(|step| step.samples == 0);
    is_empty.then(|| {
        nothing::of(
            &report.directory,
            report.job.as_ref(),
            report.result.as_ref(),
        )
    })
}

/// The report for people: problems first, each where an editor can jump to.
fn text(report: &Report) -> String {
    let directory = report.directory.display();
    let mut lines: Vec<String> = report
        .problems
        .iter()
        .map(|problem| format!("{directory}/{problem}"))
        .collect();
    if report.more_problems > 0 {
        lines.push(format!("... and {} more problems", report.more_problems));
    }
    for step in &report.steps {
        let unfinished = if step.complete {
            ""
        } else {
            ", fewer groups than asked for"
        };
        let extra = step
            .extra
            .map_or(String::new(), |rows| format!(", {rows} samples not kept"));
        lines.push(format!(
            "step {}: {} groups, {} samples, {} trained tokens{extra}{unfinished}",
            step.step, step.groups, step.samples, step.trained_tokens
        ));
    }
    if let Some(scope) = &report.scope {
        lines.extend(scope.checked.iter().map(|what| format!("checked: {what}")));
        let not = scope.not_checked.iter();
        lines.extend(not.map(|what| format!("not checked: {what}")));
    }
    lines.extend(report.notes.iter().map(|note| format!("note: {}", note.0)));
    let job = report.job.as_ref().map_or(String::new(), |job| {
        format!(
            " of job {}/{}, attempt {}",
            job.namespace, job.name, job.attempt
        )
    });
    let nothing = nothing_kept(report);
    let failed = report.result.as_ref().map(|entry| &entry.result);
    if let Some(result) = failed.filter(|result| !result.success && nothing.is_none()) {
        lines.push(format!(
            "the job ended with {:?}: {}",
            result.reason, result.message
        ));
    }
    let problems = report.problems.len() as u64 + report.more_problems;
    lines.push(match (problems, nothing) {
        (0, Some(nothing)) => nothing,
        (0, None) => format!("{directory}: the samples{job} are sound"),
        (1, _) => format!("{directory}: 1 problem in the samples{job}"),
        (more, _) => format!("{directory}: {more} problems in the samples{job}"),
    });
    lines.join("\n") + "\n"
}
