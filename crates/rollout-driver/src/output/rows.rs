//! Rows: one JSON object per line, one sample per row.

use rollout_session::{InvariantError, Sample, SampleStatus};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::OutputError;

/// Key of the metadata that says why a sample was not kept.
pub const NOT_KEPT: &str = "not_kept";

/// Key of the metadata that says which invariant a failed sample broke.
pub const INVALID: &str = "invalid";

/// The rows of a kept group, as [`super::Writer::keep`] takes them and a ledger can hold them.
///
/// # Errors
/// A sample breaks an invariant. Nothing of the group may be kept then.
pub fn encode(samples: &[Sample]) -> Result<Vec<u8>, OutputError> {
    let mut rows = Vec::new();
    for (place, sample) in (0..).zip(samples) {
        let index = sample.index.unwrap_or(place);
        validate(sample)
            .and_then(|()| push_row(&mut rows, sample))
            .map_err(|source| OutputError::Sample { index, source })?;
    }
    Ok(rows)
}

/// The rows of a group that was not kept. A sample that breaks an invariant loses its arrays and becomes a failed one with the reason.
pub(super) fn encode_not_kept(
    samples: &[Sample],
    state: &str,
    reason: &str,
) -> Result<Vec<u8>, OutputError> {
    let mut rows = Vec::new();
    for (place, sample) in (0..).zip(samples) {
        let index = sample.index.unwrap_or(place);
        let mut sample = sample.clone();
        if let Err(broken) = validate(&sample) {
            sample
                .metadata
                .insert(INVALID.to_owned(), Value::String(broken.to_string()));
            sample = Sample {
                status: SampleStatus::Failed,
                tokens: Vec::new(),
                response_length: 0,
                loss_mask: None,
                rollout_log_probs: None,
                rollout_routed_experts: None,
                rollout_indexer_topk: None,
                non_generation_time: 0.0,
                ..sample
            };
        }
        sample.metadata.insert(
            NOT_KEPT.to_owned(),
            json!({"state": state, "reason": reason}),
        );
        push_row(&mut rows, &sample).map_err(|source| OutputError::Sample { index, source })?;
    }
    Ok(rows)
}

/// The invariants of a sample, and what JSON adds to them.
fn validate(sample: &Sample) -> Result<(), InvariantError> {
    if !sample.non_generation_time.is_finite() {
        let problem = format!("is {}, not a finite number", sample.non_generation_time);
        return Err(InvariantError {
            field: "non_generation_time",
            problem,
        });
    }
    sample.validate()
}

fn push_row(rows: &mut Vec<u8>, sample: &Sample) -> Result<(), InvariantError> {
    let written = serde_json::to_writer(&mut *rows, sample);
    written.map_err(|error| InvariantError {
        field: "metadata",
        problem: format!("cannot be JSON: {error}"),
    })?;
    rows.push(b'\n');
    Ok(())
}

/// The samples of rows, or the line (from 1) and what is wrong with it.
pub fn decode(rows: &[u8]) -> Result<Vec<Sample>, (u64, String)> {
    let mut samples = Vec::new();
    for (line, row) in (1..).zip(rows.split_inclusive(|byte| *byte == b'\n')) {
        let Some(row) = row.strip_suffix(b"\n") else {
            return Err((line, "the line does not end".to_owned()));
        };
        samples.push(serde_json::from_slice(row).map_err(|error| (line, error.to_string()))?);
    }
    Ok(samples)
}

/// The index of the first row: what rows are sorted by.
pub(super) fn first_index(rows: &[u8]) -> Option<i64> {
    #[derive(Deserialize)]
    struct Indexed {
        index: Option<i64>,
    }
    let row = rows.split(|byte| *byte == b'\n').next()?;
    serde_json::from_slice::<Indexed>(row).ok()?.index
}
