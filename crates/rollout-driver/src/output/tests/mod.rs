//! Output directories as drivers leave them, whole and damaged.

mod agreement;
mod attempts;
mod steps;
mod verification;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rollout_engine::{JobResult, Reason, TakeEnd, Tally};
use rollout_session::{PrefixCacheInfo, Sample, SampleStatus};
use serde_json::{Map, Value, json};

use super::*;

fn job(uid: &str, attempt: u64) -> JobStamp {
    JobStamp {
        namespace: "rl".into(),
        name: "swe".into(),
        uid: uid.into(),
        attempt,
    }
}

fn config(directory: &Path) -> OutputConfig {
    OutputConfig {
        dataset: None,
        directory: directory.into(),
        job: job("u-1", 1),
        samples_per_prompt: 2,
        reward: RewardInfo {
            model: "Math".into(),
            key: String::new(),
        },
        tokenizer: None,
        include_all: false,
    }
}

struct Home {
    root: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().expect("a directory"),
        }
    }

    fn output(&self) -> PathBuf {
        self.root.path().join("out")
    }

    fn open(&self, change: impl FnOnce(&mut OutputConfig)) -> Result<Writer, OutputError> {
        let mut config = config(&self.output());
        change(&mut config);
        Writer::open(config)
    }

    fn writer(&self) -> Writer {
        self.open(|_| {}).expect("a writer")
    }

    /// An error, with the directory taken out.
    fn text(&self, error: &OutputError) -> String {
        format!("{}: {error}", error.label())
            .replace(&self.root.path().display().to_string(), "DIR")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.output().join(name)).expect(name)
    }
}

fn sample(group: i64, slot: i64) -> Sample {
    Sample {
        group_index: Some(group),
        index: Some(group * 2 + slot),
        rollout_id: Some(group * 2 + slot),
        prompt: json!([{"role": "user", "content": format!("question {group}")}]),
        tokens: vec![11, 12, 13, 14, 15],
        response: "it is \\boxed{4}".into(),
        response_length: 3,
        label: json!("4"),
        reward: json!(slot),
        loss_mask: Some(vec![1, 0, 1]),
        weight_versions: vec!["7".into()],
        rollout_log_probs: Some(vec![-0.25, 0.0, -0.0]),
        status: SampleStatus::Completed,
        prefix_cache_info: PrefixCacheInfo {
            cached_tokens: slot,
            total_prompt_tokens: 2,
        },
        ..Sample::default()
    }
}

fn group(group: i64) -> Vec<Sample> {
    vec![sample(group, 0), sample(group, 1)]
}

fn keep(writer: &Writer, step: u32, index: i64) {
    let rows = encode(&group(index)).expect("rows");
    writer
        .keep(step, u64::try_from(index).expect("an index"), &rows)
        .expect("kept");
}

fn summary(step: u32, kept: &[u64]) -> StepSummary {
    let mut ledger = Tally {
        taken: kept.len() as u64 + 1,
        ..Tally::default()
    };
    ledger.count(&TakeEnd::Kept, kept.len() as u64);
    ledger.count(&TakeEnd::Filtered("zero_std_1.0".into()), 1);
    StepSummary {
        step,
        complete: true,
        kept: kept.to_vec(),
        ledger,
        metrics: Map::new(),
    }
}

/// A sound directory of two steps.
fn sound() -> Home {
    let home = Home::new();
    let writer = home.writer();
    for (step, kept) in [(0, [0, 1]), (1, [2, 3])] {
        for group in kept {
            keep(&writer, step, group);
        }
        let kept: Vec<u64> = kept
            .iter()
            .map(|group| u64::try_from(*group).expect("an index"))
            .collect();
        writer.finish_step(&summary(step, &kept)).expect("finished");
    }
    writer.decide(decided()).expect("decided");
    home
}

/// The end of that job.
fn decided() -> ResultEntry {
    let mut ledger = summary(0, &[0, 1]).ledger;
    ledger.add(&summary(1, &[2, 3]).ledger);
    ResultEntry {
        result: JobResult {
            reason: Reason::TargetReached,
            message: "2 groups kept".into(),
            success: true,
        },
        ledger,
    }
}

fn problems(home: &Home) -> Vec<String> {
    let report = verify(&home.output(), 1000).expect("a report");
    report.problems.iter().map(ToString::to_string).collect()
}

fn entry_of(home: &Home, name: &str) -> StepEntry {
    let manifest = Manifest::read(&home.output())
        .expect("read")
        .expect("a manifest");
    manifest
        .steps
        .into_iter()
        .find(|step| step.samples.file == name)
        .expect("a step")
}
