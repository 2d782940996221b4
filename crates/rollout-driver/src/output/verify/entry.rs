//! The manifest's entry of a step against what its files really hold. Pure.

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
    if ledger.taken != ledger.ended() {
        add(
            "ledger.taken",
            format!(
                "is {}, the states sum up to {}",
                ledger.taken,
                ledger.ended()
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

/// The job's result against its steps.
pub(super) fn check_result(result: &ResultEntry, steps: &[StepReport], problems: &mut Problems) {
    let ResultEntry { result, ledger } = result;
    let mut add = |field: &str, problem: String| problems.add(MANIFEST, None, Some(field), problem);
    if ledger.taken != ledger.ended() {
        let ended = ledger.ended();
        add(
            "result.ledger.taken",
            format!("is {}, the states sum up to {ended}", ledger.taken),
        );
    }
    if let Some(step) = steps.iter().find(|step| result.success && !step.complete) {
        add(
            "result.success",
            format!("is true, but step {} is not complete", step.step),
        );
    }
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
