//! Names inside an output directory.
//!
//! ```text
//! DIR/samples-<step>.jsonl           kept samples of a step, sorted by index
//! DIR/extra-<step>.jsonl             with includeAll: what was generated and not kept, with the reason in `metadata.not_kept`
//! DIR/manifest.json                  what the files hold
//! DIR/.rollout/output.json           whose directory this is
//! DIR/.rollout/parts/<step>/         kept-<group>.jsonl, extra-<group>-<attempt>-<take>.jsonl, until the step ends
//! ```

use std::path::{Path, PathBuf};

pub(super) const MANIFEST: &str = "manifest.json";

pub(super) fn manifest(directory: &Path) -> PathBuf {
    directory.join(MANIFEST)
}

pub(super) fn samples(step: u32) -> String {
    format!("samples-{step}.jsonl")
}

pub(super) fn extra(step: u32) -> String {
    format!("extra-{step}.jsonl")
}

pub(super) fn state(directory: &Path) -> PathBuf {
    directory.join(".rollout")
}

pub(super) fn stamp(directory: &Path) -> PathBuf {
    state(directory).join("output.json")
}

pub(super) fn all_parts(directory: &Path) -> PathBuf {
    state(directory).join("parts")
}

pub(super) fn parts(directory: &Path, step: u32) -> PathBuf {
    all_parts(directory).join(step.to_string())
}

pub(super) fn kept_part(group: u64) -> String {
    format!("kept-{group}.jsonl")
}

pub(super) fn extra_part(group: u64, attempt: u64, take: u64) -> String {
    format!("extra-{group}-{attempt}-{take}.jsonl")
}

/// The group of a kept part's name.
pub(super) fn kept_group(name: &str) -> Option<u64> {
    name.strip_prefix("kept-")?
        .strip_suffix(".jsonl")?
        .parse()
        .ok()
}

pub(super) fn is_extra_part(name: &str) -> bool {
    name.strip_prefix("extra-")
        .and_then(|rest| rest.strip_suffix(".jsonl"))
        .is_some()
}

/// The step of a samples or extra file's name.
pub(super) fn step_of(name: &str) -> Option<u32> {
    let rest = name
        .strip_prefix("samples-")
        .or_else(|| name.strip_prefix("extra-"))?;
    rest.strip_suffix(".jsonl")?.parse().ok()
}

pub(super) fn is_output(name: &str) -> bool {
    name == MANIFEST || step_of(name).is_some()
}
