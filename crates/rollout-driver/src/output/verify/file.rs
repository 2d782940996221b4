//! One file of rows: each row by itself, and their order.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use rollout_session::Sample;
use sha2::{Digest, Sha256};

use super::ids::{Ids, Text};
use super::{Problems, row};
use crate::digest::hex;
use crate::json_error::without_position;
use crate::output::error::OutputError;
use crate::output::manifest::{FileEntry, RewardInfo};
use crate::output::metrics::Sums;

/// A longer row is no sample.
const MAX_ROW_BYTES: u64 = 1 << 30;

/// Which rows a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Kept samples: sorted, in whole groups.
    Kept,
    /// What was generated and not kept.
    Extra,
}

/// What must hold for a file.
#[derive(Debug)]
pub(super) struct FileRules<'a> {
    pub(super) kind: Kind,
    pub(super) samples_per_prompt: u32,
    pub(super) reward: &'a RewardInfo,
    pub(super) ids: &'a Ids,
}

/// What a file holds; `hash` is `None` when there is no such file.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) sums: Sums,
    pub(super) bytes: u64,
    pub(super) sha256: Option<String>,
    /// Kept rows whose text was compared with their ids.
    pub(super) compared: u64,
}

/// Reads a file of the directory, adding what is wrong with its rows.
pub(super) fn verify(
    directory: &Path,
    entry: &FileEntry,
    rules: &FileRules<'_>,
    problems: &mut Problems,
) -> Result<Found, OutputError> {
    let name = entry.file.as_str();
    let path = directory.join(name);
    let mut found = Found {
        sums: Sums::new(&rules.reward.key),
        bytes: 0,
        sha256: None,
        compared: 0,
    };
    let file = match entry.open(directory) {
        Ok(Some(file)) => file,
        Ok(None) => {
            problems.add(name, None, None, "is missing, but the manifest names it");
            return Ok(found);
        }
        Err(OutputError::Broken { problem, .. }) => {
            problems.add(name, None, None, problem);
            return Ok(found);
        }
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut hash = Sha256::new();
    let mut order = Order::default();
    let mut buffer = Vec::new();
    for line in 1.. {
        buffer.clear();
        let read = (&mut reader)
            .take(MAX_ROW_BYTES)
            .read_until(b'\n', &mut buffer);
        if read.map_err(|source| OutputError::io("read", &path, source))? == 0 {
            break;
        }
        hash.update(&buffer);
        found.bytes += buffer.len() as u64;
        let mut add =
            |field: Option<&str>, problem: String| problems.add(name, Some(line), field, problem);
        let Some(text) = buffer.strip_suffix(b"\n") else {
            add(
                None,
                "the line does not end: the file is cut off".to_owned(),
            );
            continue;
        };
        let sample: Sample = match serde_json::from_slice(text) {
            Ok(sample) => sample,
            Err(error) => {
                add(
                    None,
                    format!(
                        "column {}: is no sample: {}",
                        error.column(),
                        without_position(&error)
                    ),
                );
                order.has_unread_rows = true;
                continue;
            }
        };
        for (field, problem) in row::findings(&sample, rules.kind, rules.reward) {
            add(Some(field), problem);
        }
        if let Some(problem) = rules.ids.out_of_range(&sample) {
            add(Some("tokens"), problem);
        } else if rules.kind == Kind::Kept {
            match rules.ids.text(&sample) {
                Text::Same => found.compared += 1,
                Text::Differs(problem) => add(Some("response"), problem),
                Text::Unknown => {}
            }
        }
        if rules.kind == Kind::Kept {
            for (field, problem) in order.next(&sample, rules.samples_per_prompt) {
                add(Some(field), problem);
            }
        }
        found.sums.add(&sample);
    }
    if rules.kind == Kind::Kept
        && let Some(problem) = order.end_of_group(rules.samples_per_prompt)
    {
        problems.add(name, None, Some("group_index"), problem);
    }
    found.sha256 = Some(hex(hash));
    Ok(found)
}

/// The order of kept rows: groups one after another, indices rising. Rows of one index are parts of one rollout and say so.
#[derive(Debug, Default)]
struct Order {
    group: Option<i64>,
    groups_before: BTreeSet<i64>,
    rollouts_in_group: u32,
    last: Option<(i64, Option<i64>)>,
    /// Groups cannot be counted where rows could not be read.
    has_unread_rows: bool,
}

impl Order {
    fn next(&mut self, sample: &Sample, samples_per_prompt: u32) -> Vec<row::Finding> {
        let mut findings = Vec::new();
        let (Some(index), Some(group)) = (sample.index, sample.group_index) else {
            return findings;
        };
        if self.group != Some(group) {
            findings.extend(
                self.end_of_group(samples_per_prompt)
                    .map(|problem| ("group_index", problem)),
            );
            if self.groups_before.contains(&group) {
                findings.push((
                    "group_index",
                    format!("is {group}, whose rows ended before"),
                ));
            }
            self.groups_before.extend(self.group.replace(group));
            self.rollouts_in_group = 0;
        }
        match self.last {
            Some((last, rollout)) if last == index => {
                if sample.rollout_id.is_none() || sample.rollout_id != rollout {
                    let text = format!(
                        "{index} is also that of the row before, and they share no rollout_id"
                    );
                    findings.push(("index", text));
                }
            }
            Some((last, _)) if last > index => {
                self.rollouts_in_group += 1;
                findings.push((
                    "index",
                    format!("is {index} after {last}: rows are not sorted"),
                ));
            }
            _ => self.rollouts_in_group += 1,
        }
        self.last = Some((index, sample.rollout_id));
        findings
    }

    /// What is wrong with the size of the group that just ended.
    fn end_of_group(&self, samples_per_prompt: u32) -> Option<String> {
        let group = self.group?;
        (self.rollouts_in_group != samples_per_prompt && !self.has_unread_rows).then(|| {
            format!(
                "group {group} has {} samples, expected {samples_per_prompt}",
                self.rollouts_in_group
            )
        })
    }
}
