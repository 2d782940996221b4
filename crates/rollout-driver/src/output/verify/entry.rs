//! The manifest's entry of a step against what its files really hold. Pure.

use std::collections::BTreeMap;

use rollout_engine::{Reason, Tally};
use serde_json::Value;

use super::file::Found;
use super::{Problems, StepReport};
use crate::output::layout::MANIFEST;
use crate::output::manifest::{FileEntry, ResultEntry, StepEntry, TokenCounts};
use crate::output::metrics::Sums;

/// Floating point sums that went through JSON may differ in the last digit.
const RELATIVE_TOLERANCE: f64 = 1e-9;

/// Counts and hash of a file. A missing file has been reported.
pub(super) fn compare_file(entry: &FileEntry, found: &Found, place: &str, problems: &mut Problems) {
    let Some(sha256) = &found.sha256 else { return };
    let mut compare = |field: &str, said: &str, real: &str| {
        if said != real {
            let field = format!("{place}.{field}");
            problems.add(
                MANIFEST,
                None,
                Some(&field),
                format!("is {said}, {} has {real}", entry.file),
            );
        }
    };
    let FileEntry {
        file: _,
        rows,
        groups,
        bytes,
        sha256: said,
    } = entry;
    compare("rows", &rows.to_string(), &found.sums.rows.to_string());
    compare(
        "groups",
        &groups.to_string(),
        &found.sums.groups().to_string(),
    );
    compare("bytes", &bytes.to_string(), &found.bytes.to_string());
    compare("sha256", said, sha256);
}

/// Sums and metrics of the kept samples.
pub(super) fn compare_sums(entry: &StepEntry, sums: &Sums, problems: &mut Problems) {
    let mut add = |field: &str, said: String, real: String| {
        let field = format!("step {}.{field}", entry.step);
        problems.add(
            MANIFEST,
            None,
            Some(&field),
            format!("is {said}, the samples give {real}"),
        );
    };
    if entry.status != sums.status {
        add(
            "status",
            format!("{:?}", entry.status),
            format!("{:?}", sums.status),
        );
    }
    if entry.tokens != sums.tokens {
        add("tokens", tokens(entry.tokens), tokens(sums.tokens));
    }
    if entry.weight_versions != sums.weight_versions {
        add(
            "weight_versions",
            format!("{:?}", entry.weight_versions),
            format!("{:?}", sums.weight_versions),
        );
    }
    for (name, real) in sums.metrics(entry.step) {
        let said = entry.metrics.get(&name).unwrap_or(&Value::Null);
        if !nearly_equal(said, &real) {
            add(
                &format!("metrics.{name}"),
                said.to_string(),
                real.to_string(),
            );
        }
    }
}

/// Each take ends in one state, so the states sum up to the takes.
pub(super) fn check_ledger(entry: &StepEntry, problems: &mut Problems) {
    let ledger = &entry.ledger;
    let mut add = |field: &str, problem: String| {
        problems.add(
            MANIFEST,
            None,
            Some(&format!("step {}.{field}", entry.step)),
            problem,
        );
    };
    if u128::from(ledger.taken) != ended(ledger) {
        add(
            "ledger.taken",
            format!(
                "is {}, the states sum up to {}",
                ledger.taken,
                ended(ledger)
            ),
        );
    }
    if ledger.kept != entry.samples.groups {
        add(
            "ledger.kept",
            format!(
                "is {}, {} has {} groups",
                ledger.kept, entry.samples.file, entry.samples.groups
            ),
        );
    }
}

/// The job's result against its steps, and against what their files hold.
pub(super) fn check_result(
    entry: &ResultEntry,
    entries: &[StepEntry],
    steps: &[StepReport],
    problems: &mut Problems,
) {
    let ResultEntry { result, ledger } = entry;
    let mut add = |field: &str, problem: String| problems.add(MANIFEST, None, Some(field), problem);
    let reached = result.reason == Reason::TargetReached;
    if result.success != reached {
        let problem = format!(
            "is {}, but the reason is {:?}",
            result.success, result.reason
        );
        add("result.success", problem);
    }
    if u128::from(ledger.taken) != ended(ledger) {
        let problem = format!(
            "is {}, the states sum up to {}",
            ledger.taken,
            ended(ledger)
        );
        add("result.ledger.taken", problem);
    }
    let in_files: u64 = steps.iter().map(|step| step.groups).sum();
    if ledger.kept != in_files {
        let problem = format!(
            "is {}, the files of all steps have {in_files} groups",
            ledger.kept
        );
        add("result.ledger.kept", problem);
    }
    let of_steps: u128 = entries
        .iter()
        .map(|step| u128::from(step.ledger.taken))
        .sum();
    let taken = u128::from(ledger.taken);
    // A job that gave up may have taken groups in a step that it never wrote.
    if taken < of_steps || (reached && taken > of_steps) {
        let problem = format!("is {taken}, the ledgers of the steps sum up to {of_steps}");
        add("result.ledger.taken", problem);
    }
    if !reached {
        return;
    }
    if steps.is_empty() {
        add(
            "result.reason",
            "is TargetReached, but there is no step".to_owned(),
        );
    }
    for step in steps {
        let lack = match step {
            StepReport {
                complete: false, ..
            } => "is not complete",
            StepReport { groups: 0, .. } => "has no groups",
            _ => continue,
        };
        let problem = format!("is TargetReached, but step {} {lack}", step.step);
        add("result.reason", problem);
    }
}

/// Steps are numbered from 0 without a gap, each once.
pub(super) fn check_numbers(entries: &[StepEntry], problems: &mut Problems) {
    for (expected, entry) in (0..).zip(entries) {
        if entry.step != expected {
            let problem = format!("has step {} where step {expected} belongs", entry.step);
            problems.add(MANIFEST, None, Some("steps"), problem);
            return;
        }
    }
}

/// [`Tally::ended`] of numbers that may be anything.
fn ended(ledger: &Tally) -> u128 {
    let by_reason = [
        &ledger.filtered,
        &ledger.recycled,
        &ledger.failed,
        &ledger.lost,
    ];
    let others = by_reason.into_iter().flat_map(BTreeMap::values);
    u128::from(ledger.kept) + others.map(|count| u128::from(*count)).sum::<u128>()
}

fn tokens(counts: TokenCounts) -> String {
    let TokenCounts {
        total,
        response,
        trained,
    } = counts;
    format!("{total} in all, {response} of responses, {trained} trained")
}

fn nearly_equal(said: &Value, real: &Value) -> bool {
    match (said.as_f64(), real.as_f64()) {
        (Some(said), Some(real)) => {
            (said - real).abs() <= RELATIVE_TOLERANCE * said.abs().max(real.abs()).max(1.0)
        }
        _ => said == real,
    }
}
