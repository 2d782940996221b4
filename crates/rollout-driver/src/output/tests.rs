//! Output directories as drivers leave them, whole and damaged.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rollout_engine::{TakeEnd, Tally};
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
        directory: directory.into(),
        job: job("u-1", 1),
        samples_per_prompt: 2,
        reward: RewardInfo {
            model: "Math".into(),
            key: String::new(),
        },
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
    home
}

fn problems(home: &Home) -> Vec<String> {
    let report = verify(&home.output(), 1000).expect("a report");
    report.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_step_is_sorted_whole_and_described() {
    let home = Home::new();
    let writer = home.writer();
    for index in [3, 0, 2] {
        keep(&writer, 0, index);
    }
    keep(&writer, 1, 4);
    let entry = writer
        .finish_step(&summary(0, &[3, 2, 0]))
        .expect("finished");

    let samples = decode(&home.read("samples-0.jsonl")).expect("rows");
    assert_eq!(samples, [group(0), group(2), group(3)].concat());
    assert_eq!(
        Manifest::read(&home.output())
            .expect("read")
            .expect("a manifest")
            .steps,
        [entry]
    );
    let report = verify(&home.output(), 10).expect("a report");
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!(
        report.notes,
        [Note(
            "step 1 is not finished: 1 kept groups wait in parts".into()
        )]
    );
    assert_eq!(writer.totals(), (1, 6));
}

#[test]
fn a_manifest_counts_and_measures_what_was_kept() {
    let home = Home::new();
    let writer = home.writer();
    for index in [3, 0, 2] {
        keep(&writer, 0, index);
    }
    let mut end = summary(0, &[3, 2, 0]);
    end.metrics.insert("perf/rollout_time".into(), json!(1.5));
    writer.finish_step(&end).expect("finished");
    let manifest = String::from_utf8(home.read("manifest.json")).expect("text");
    let file = &entry_of(&home, "samples-0.jsonl").samples;
    let manifest = manifest
        .replace(&file.sha256, "(hash)")
        .replace(&file.bytes.to_string(), "(length)");
    insta::assert_snapshot!(manifest, @r#"
    {
      "version": 1,
      "job": {
        "namespace": "rl",
        "name": "swe",
        "uid": "u-1",
        "attempt": 1
      },
      "samples_per_prompt": 2,
      "reward": {
        "model": "Math",
        "key": ""
      },
      "steps": [
        {
          "step": 0,
          "attempt": 1,
          "complete": true,
          "samples": {
            "file": "samples-0.jsonl",
            "rows": 6,
            "groups": 3,
            "bytes": (length),
            "sha256": "(hash)"
          },
          "status": {
            "completed": 6
          },
          "tokens": {
            "total": 30,
            "response": 18,
            "trained": 12
          },
          "weight_versions": {
            "7": 6
          },
          "ledger": {
            "taken": 4,
            "kept": 3,
            "filtered": {
              "zero_std_1.0": 1
            },
            "recycled": {},
            "failed": {},
            "lost": {}
          },
          "metrics": {
            "rollout/step": 0,
            "rollout/response_len/mean": 2.0,
            "rollout/response_len/median": 2.0,
            "rollout/response_len/max": 2,
            "rollout/response_len/min": 2,
            "rollout/truncated_ratio": 0.0,
            "rollout/prefix_cache_hit_rate": 0.25,
            "rollout/avg_cached_tokens_per_sample": 0.5,
            "rollout/raw_reward": 0.5,
            "rollout/zero_std/all_zero_percentage": 0.0,
            "rollout/zero_std/all_one_percentage": 0.0,
            "rollout/weight_version/mean": 7.0,
            "rollout/weight_version/median": 7.0,
            "rollout/weight_version/max": 7,
            "rollout/weight_version/min": 7,
            "rollout/weight_version/mixed_version_ratio": 0.0,
            "perf/rollout_time": 1.5,
            "rollout/dynamic_filter/drop_zero_std_1.0": 1
          }
        }
      ]
    }
    "#);
}

#[test]
fn log_probabilities_keep_every_bit() {
    let home = Home::new();
    let writer = home.writer();
    let exact = [
        -0.0,
        -1e308,
        -4.930_380_657_631_324e-32,
        -0.100_000_000_000_000_02,
    ];
    let mut samples = group(0);
    samples[0].response_length = 4;
    samples[0].loss_mask = None;
    samples[0].rollout_log_probs = Some(exact.to_vec());
    writer
        .keep(0, 0, &encode(&samples).expect("rows"))
        .expect("kept");
    writer.finish_step(&summary(0, &[0])).expect("finished");
    let read = decode(&home.read("samples-0.jsonl")).expect("rows");
    let bits = |values: &[f64]| {
        values
            .iter()
            .map(|value| value.to_bits())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        bits(read[0].rollout_log_probs.as_ref().expect("log-probs")),
        bits(&exact)
    );
}

#[test]
fn a_step_that_is_finished_again_is_the_same() {
    let home = Home::new();
    let writer = home.writer();
    keep(&writer, 0, 0);
    let entry = writer.finish_step(&summary(0, &[0])).expect("finished");
    let before = (home.read("samples-0.jsonl"), home.read("manifest.json"));
    assert_eq!(writer.finished(0), Some(entry.clone()));
    assert_eq!(
        writer.finish_step(&summary(0, &[0])).expect("finished"),
        entry
    );
    drop(writer);
    let again = home.writer();
    assert_eq!(
        again.finish_step(&summary(0, &[0])).expect("finished"),
        entry
    );
    assert_eq!(
        (home.read("samples-0.jsonl"), home.read("manifest.json")),
        before
    );
}

#[test]
fn a_crash_between_file_and_manifest_is_repaired_with_the_same_content() {
    let home = sound();
    let (samples, manifest) = (home.read("samples-1.jsonl"), home.read("manifest.json"));
    // As if the crash came after samples-1.jsonl: the manifest is the one before, the parts are there, a temporary file too.
    let mut before: Manifest = serde_json::from_slice(&manifest).expect("a manifest");
    before.steps.pop();
    fs::write(
        home.output().join("manifest.json"),
        serde_json::to_vec(&before).expect("JSON"),
    )
    .expect("written");
    fs::write(home.output().join(".manifest.json.tmp"), "{\"ver").expect("written");
    let report = verify(&home.output(), 10).expect("a report");
    assert!(report.is_sound());
    assert_eq!(
        report.notes[0].0,
        "samples-1.jsonl is not in the manifest: its step was not finished"
    );

    let writer = home.writer();
    keep(&writer, 1, 2);
    keep(&writer, 1, 3);
    writer.finish_step(&summary(1, &[2, 3])).expect("finished");
    assert_eq!(
        (home.read("samples-1.jsonl"), home.read("manifest.json")),
        (samples, manifest)
    );
    assert!(!home.output().join(".manifest.json.tmp").exists());
}

#[test]
fn another_attempt_finds_what_was_kept() {
    let home = Home::new();
    let first = home.writer();
    keep(&first, 0, 5);
    keep(&first, 0, 1);
    let parts = home.output().join(".rollout/parts/0");
    fs::write(parts.join(".kept-9.jsonl.tmp"), "half").expect("written");
    fs::write(parts.join("kept-8.jsonl"), "{\"status\": \"comp").expect("written");

    let second = home
        .open(|config| config.job.attempt = 2)
        .expect("a writer");
    let recovered = second.recover(0).expect("parts");
    let groups: Vec<_> = recovered
        .groups
        .iter()
        .map(|part| (part.group, part.samples.len()))
        .collect();
    assert_eq!(groups, [(1, 2), (5, 2)]);
    assert_eq!(recovered.groups[0].rows, encode(&group(1)).expect("rows"));
    assert_eq!(recovered.broken.len(), 1);
    assert_eq!(
        home.text(&recovered.broken[0]),
        "broken: DIR/out/.rollout/parts/0/kept-8.jsonl cannot be used: line 1: the line does not end"
    );
    assert!(!parts.join(".kept-9.jsonl.tmp").exists());
    assert!(second.recover(3).expect("no parts").groups.is_empty());
}

#[test]
fn a_late_writer_is_refused_and_changes_nothing() {
    let home = Home::new();
    let late = home.writer();
    keep(&late, 0, 0);
    let new = home
        .open(|config| config.job.attempt = 2)
        .expect("a writer");
    let rows = encode(&group(1)).expect("rows");
    let error = late.keep(0, 1, &rows).expect_err("superseded");
    assert_eq!(
        home.text(&error),
        "superseded: attempt 1 may no longer write to DIR/out: attempt 2 took it over"
    );
    assert_eq!(
        late.finish_step(&summary(0, &[0]))
            .expect_err("superseded")
            .label(),
        "superseded"
    );
    assert!(!home.output().join("samples-0.jsonl").exists());
    assert_eq!(new.recover(0).expect("parts").groups.len(), 1);

    let error = home.open(|_| {}).expect_err("an older attempt");
    assert_eq!(error.label(), "superseded");
    // Two processes of one attempt: the one that came last writes.
    let third = home
        .open(|config| config.job.attempt = 2)
        .expect("a writer");
    assert_eq!(
        new.keep(0, 1, &rows).expect_err("superseded").label(),
        "superseded"
    );
    third.keep(0, 1, &rows).expect("kept");
}

#[test]
fn a_directory_of_another_job_is_refused() {
    let home = sound();
    let error = home
        .open(|config| config.job.uid = "u-2".into())
        .expect_err("another job");
    assert_eq!(
        home.text(&error),
        "other_job: DIR/out is the output of job rl/swe (uid u-1), not of rl/swe (uid u-2); choose another output directory"
    );
    fs::remove_dir_all(home.output().join(".rollout")).expect("removed");
    let error = home.open(|_| {}).expect_err("unknown owner");
    assert_eq!(
        home.text(&error),
        "unknown_owner: DIR/out holds manifest.json, but no record of the job that wrote it; choose another output directory"
    );
    fs::create_dir_all(home.output().join(".rollout")).expect("made");
    fs::write(home.output().join(".rollout/output.json"), "{}").expect("written");
    assert_eq!(home.open(|_| {}).expect_err("broken").label(), "broken");
}

#[test]
fn what_was_not_kept_is_written_when_asked_for() {
    let home = Home::new();
    let writer = home
        .open(|config| config.include_all = true)
        .expect("a writer");
    keep(&writer, 0, 0);
    let end = |take, state, reason| NotKept {
        take,
        state,
        reason,
    };
    writer
        .not_kept(0, 1, end(5, "filtered", "zero_std_1.0"), &group(1))
        .expect("written");
    let mut aborted = group(2);
    aborted[0].status = SampleStatus::Aborted;
    aborted[1].loss_mask = Some(vec![1]);
    writer
        .not_kept(0, 2, end(6, "recycled", "aborted"), &aborted)
        .expect("written");
    writer
        .not_kept(0, 2, end(7, "recycled", "aborted"), &group(2))
        .expect("written");
    let entry = writer.finish_step(&summary(0, &[0])).expect("finished");

    let extra = decode(&home.read("extra-0.jsonl")).expect("rows");
    assert_eq!(
        entry.extra.map(|file| (file.rows, file.groups)),
        Some((6, 2))
    );
    assert_eq!(
        extra[0].metadata["not_kept"],
        json!({"state": "filtered", "reason": "zero_std_1.0"})
    );
    assert_eq!(
        (extra[3].status, extra[3].tokens.len()),
        (SampleStatus::Failed, 0)
    );
    assert_eq!(
        extra[3].metadata["invalid"],
        json!("loss_mask: has 1 entries, response_length is 3")
    );
    assert_eq!(problems(&home), Vec::<String>::new());

    let home = Home::new();
    let writer = home.writer();
    keep(&writer, 0, 0);
    writer
        .not_kept(0, 1, end(5, "filtered", "x"), &group(1))
        .expect("nothing to do");
    assert_eq!(
        writer
            .finish_step(&summary(0, &[0]))
            .expect("finished")
            .extra,
        None
    );
}

#[test]
fn a_group_that_was_never_written_stops_the_step() {
    let home = Home::new();
    let writer = home.writer();
    keep(&writer, 2, 0);
    let error = writer
        .finish_step(&summary(2, &[0, 9]))
        .expect_err("missing");
    assert_eq!(
        home.text(&error),
        "missing_group: group 9 of step 2 is not in the output: write it before the step ends"
    );
    keep(&writer, 2, 9);
    writer.finish_step(&summary(2, &[0, 9])).expect("finished");
}

#[test]
fn a_sample_that_breaks_an_invariant_is_never_encoded() {
    let mut samples = group(4);
    samples[1].rollout_log_probs = Some(vec![0.0]);
    let error = encode(&samples).expect_err("broken");
    assert_eq!(error.to_string(), "sample 9 breaks an invariant");
    samples[1] = Sample {
        non_generation_time: f64::NAN,
        ..sample(4, 1)
    };
    assert_eq!(encode(&samples).expect_err("broken").label(), "sample");
}

#[test]
fn a_step_without_groups_is_still_a_step() {
    let home = Home::new();
    let entry = home
        .writer()
        .finish_step(&StepSummary {
            complete: false,
            ..summary(0, &[])
        })
        .expect("finished");
    assert_eq!((entry.samples.rows, entry.metrics.len()), (0, 1));
    assert_eq!(problems(&home), Vec::<String>::new());
}

/// A limit on the size of files stands for a full disk: the kernel takes part of a write and refuses the rest.
#[test]
fn a_full_disk_is_an_error_and_leaves_nothing_half_written() {
    let home = Home::new();
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact output::tests::writes_more_than_fits --ignored";
    let program = std::env::current_exe().expect("this test");
    let child = std::process::Command::new("bash")
        .args(["-c", script])
        .arg(program)
        .env("ROLLOUT_TEST_OUTPUT", home.output())
        .output()
        .expect("bash");
    assert!(
        child.status.success(),
        "{}",
        String::from_utf8_lossy(&child.stdout)
    );
    assert!(home.output().join(".rollout/parts/0/kept-0.jsonl").exists());
    let files = walk(&home.output());
    assert_eq!(
        files,
        [".rollout/output.json", ".rollout/parts/0/kept-0.jsonl"]
    );
}

#[test]
#[ignore = "run in a child with a limit, by a_full_disk_is_an_error_and_leaves_nothing_half_written"]
fn writes_more_than_fits() {
    let Some(directory) = std::env::var_os("ROLLOUT_TEST_OUTPUT") else {
        return;
    };
    let writer = Writer::open(config(Path::new(&directory))).expect("a writer");
    keep(&writer, 0, 0);
    let large = Sample {
        response: "x".repeat(1 << 20),
        ..sample(1, 0)
    };
    let error = writer
        .keep(0, 1, &encode(&[large]).expect("rows"))
        .expect_err("full");
    assert_eq!(error.label(), "no_space");
}

fn walk(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                files.push(
                    path.strip_prefix(root)
                        .expect("below")
                        .to_string_lossy()
                        .into_owned(),
                );
            }
        }
    }
    files.sort();
    files
}

/// The problems of rows after one row was changed; the counts and hashes that change with it are left out.
fn after_edit(line: usize, edit: impl FnOnce(&mut Value)) -> String {
    let home = sound();
    let path = home.output().join("samples-0.jsonl");
    let text = String::from_utf8(fs::read(&path).expect("a file")).expect("text");
    let mut rows: Vec<Value> = text
        .lines()
        .map(|row| serde_json::from_str(row).expect("JSON"))
        .collect();
    edit(&mut rows[line - 1]);
    let text: Vec<_> = rows
        .iter()
        .map(|row| {
            format!(
                "{row}
"
            )
        })
        .collect();
    fs::write(&path, text.concat()).expect("written");
    let all = problems(&home);
    assert!(
        all.iter().any(|problem| problem.contains("samples.sha256")),
        "{all:?}"
    );
    let of_rows = all
        .into_iter()
        .filter(|problem| problem.starts_with("samples-0.jsonl"));
    let columns = regex::Regex::new("column [0-9]+").expect("a pattern");
    columns
        .replace_all(&of_rows.collect::<Vec<_>>().join("; "), "column N")
        .into_owned()
}

#[test]
fn a_sound_directory_has_no_problems() {
    let report = verify(&sound().output(), 10).expect("a report");
    assert!(report.is_sound() && report.notes.is_empty());
    assert_eq!(
        report
            .steps
            .iter()
            .map(|step| (step.step, step.groups, step.samples))
            .collect::<Vec<_>>(),
        [(0, 2, 4), (1, 2, 4)]
    );
}

#[test]
fn every_broken_field_is_named() {
    let set = |field: &'static str, value: Value| move |row: &mut Value| row[field] = value;
    let found = [
        after_edit(1, set("status", json!("pending"))),
        after_edit(1, set("status", json!("failed"))),
        after_edit(1, set("status", json!("done"))),
        after_edit(2, set("tokens", json!([]))),
        after_edit(2, set("tokens", json!([1, 2, -3, 4, 5]))),
        after_edit(2, set("response_length", json!(4))),
        after_edit(2, set("loss_mask", json!([0, 0, 0]))),
        after_edit(2, set("loss_mask", json!([1, 2, 1]))),
        after_edit(2, set("rollout_log_probs", json!([0.5, 0.0, -1.0]))),
        after_edit(2, set("rollout_log_probs", json!([-0.5, -0.1, -1.0]))),
        after_edit(2, set("rollout_log_probs", json!([-0.5, null, -1.0]))),
        after_edit(3, set("reward", Value::Null)),
        after_edit(3, set("reward", json!("1"))),
        after_edit(3, set("reward", json!({"score": 1}))),
        after_edit(3, set("index", Value::Null)),
        after_edit(3, set("index", json!(1))),
        after_edit(3, set("index", json!(0))),
        after_edit(3, set("group_index", json!(7))),
        after_edit(4, set("group_index", json!(0))),
    ];
    insta::assert_snapshot!(found.join("\n"), @r#"
    samples-0.jsonl:1: status: is pending, expected completed, truncated or aborted
    samples-0.jsonl:1: status: is failed, expected completed, truncated or aborted
    samples-0.jsonl:1: column N: is no sample: unknown variant `done`, expected one of `pending`, `completed`, `truncated`, `aborted`, `failed`
    samples-0.jsonl:2: response_length: is 3, but there are only 0 tokens; samples-0.jsonl:2: tokens: is empty
    samples-0.jsonl:2: tokens: the id at 2 is negative
    samples-0.jsonl:2: loss_mask: has 3 entries, response_length is 4
    samples-0.jsonl:2: rollout_log_probs: the entry at 0 is not 0.0, its loss mask is 0; samples-0.jsonl:2: loss_mask: trains no token, but the sample is completed
    samples-0.jsonl:2: loss_mask: the entry at 1 is neither 0 nor 1
    samples-0.jsonl:2: rollout_log_probs: the entry at 0 is 0.5, above 0
    samples-0.jsonl:2: rollout_log_probs: the entry at 1 is not 0.0, its loss mask is 0
    samples-0.jsonl:2: column N: is no sample: invalid type: null, expected f64
    samples-0.jsonl:3: reward: is null, but the job scores samples with Math
    samples-0.jsonl:3: reward: is neither a number nor an object
    samples-0.jsonl:3: reward: is an object, but no reward key names its entry
    samples-0.jsonl:3: index: is missing; samples-0.jsonl: group_index: group 1 has 1 samples, expected 2
    samples-0.jsonl:3: index: 1 is also that of the row before, and they share no rollout_id; samples-0.jsonl: group_index: group 1 has 1 samples, expected 2
    samples-0.jsonl:3: index: is 0 after 1: rows are not sorted
    samples-0.jsonl:4: group_index: group 7 has 1 samples, expected 2; samples-0.jsonl: group_index: group 1 has 1 samples, expected 2
    samples-0.jsonl:4: group_index: group 1 has 1 samples, expected 2; samples-0.jsonl:4: group_index: is 0, whose rows ended before; samples-0.jsonl: group_index: group 0 has 1 samples, expected 2
    "#);
}

#[test]
fn siblings_of_one_rollout_may_share_an_index() {
    let home = Home::new();
    let writer = home.writer();
    let rows = encode(&[sample(0, 0), sample(0, 0), sample(0, 1)]).expect("rows");
    writer.keep(0, 0, &rows).expect("kept");
    writer.finish_step(&summary(0, &[0])).expect("finished");
    assert_eq!(problems(&home), Vec::<String>::new());
}

#[test]
fn damaged_files_are_named() {
    let damaged = |damage: &dyn Fn(&Path)| {
        let home = sound();
        damage(&home.output());
        problems(&home)
            .join("\n")
            .replace(&hash_of(&sound(), "samples-1.jsonl"), "(hash)")
    };
    let path = |root: &Path, name: &str| root.join(name);
    let edit = |root: &Path, name: &str, change: &dyn Fn(String) -> String| {
        let text = fs::read_to_string(path(root, name)).expect("a file");
        fs::write(path(root, name), change(text)).expect("written");
    };
    let found = [
        damaged(&|root| fs::remove_file(path(root, "samples-1.jsonl")).expect("removed")),
        damaged(&|root| {
            edit(root, "manifest.json", &|text| {
                text.replace("\"version\": 1", "\"version\": 2")
            });
        }),
        damaged(&|root| edit(root, "manifest.json", &|text| text[..40].to_owned())),
        damaged(&|root| fs::remove_file(path(root, "manifest.json")).expect("removed")),
        damaged(&|root| {
            edit(root, "manifest.json", &|text| {
                text.replace("\"taken\": 3", "\"taken\": 4")
            });
        }),
        damaged(&|root| {
            edit(root, "manifest.json", &|text| {
                text.replace("\"kept\": 2", "\"kept\": 1")
            });
        }),
        damaged(&|root| {
            edit(root, "manifest.json", &|text| {
                text.replace("raw_reward\": 0.5", "raw_reward\": 0.7")
            });
        }),
        damaged(&|root| {
            edit(root, "manifest.json", &|text| {
                text.replace("\"step\": 1,", "\"step\": 0,")
            });
        }),
        damaged(&|root| fs::write(path(root, "extra-0.jsonl"), "").expect("written")),
    ];
    insta::assert_snapshot!(found.join("\n--\n"), @r#"
    samples-1.jsonl: is missing, but the manifest names it
    --
    manifest.json: it has version 2, expected 1
    --
    manifest.json: EOF while parsing a string at line 4 column 11
    --
    manifest.json: is not there: no step is finished
    --
    manifest.json: step 0.ledger.taken: is 4, the states sum up to 3
    manifest.json: step 1.ledger.taken: is 4, the states sum up to 3
    --
    manifest.json: step 0.ledger.taken: is 3, the states sum up to 2
    manifest.json: step 0.ledger.kept: is 1, samples-0.jsonl has 2 groups
    manifest.json: step 1.ledger.taken: is 3, the states sum up to 2
    manifest.json: step 1.ledger.kept: is 1, samples-1.jsonl has 2 groups
    --
    manifest.json: step 0.metrics.rollout/raw_reward: is 0.7, the samples give 0.5
    manifest.json: step 1.metrics.rollout/raw_reward: is 0.7, the samples give 0.5
    --
    manifest.json: steps: has step 0 twice
    --
    extra-0.jsonl: is not in the manifest, and its step is finished
    "#);
}

fn hash_of(home: &Home, name: &str) -> String {
    entry_of(home, name).samples.sha256
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

#[test]
fn a_cut_file_is_noticed_at_its_last_line() {
    let home = sound();
    let path = home.output().join("samples-0.jsonl");
    let bytes = fs::read(&path).expect("a file");
    fs::write(&path, &bytes[..bytes.len() - 10]).expect("cut");
    assert_eq!(
        problems(&home)[0],
        "samples-0.jsonl:4: the line does not end: the file is cut off"
    );
}

#[test]
fn the_list_of_problems_is_bounded_and_the_rest_is_counted() {
    let home = sound();
    fs::write(home.output().join("samples-0.jsonl"), "x\n".repeat(5000)).expect("written");
    let report = verify(&home.output(), 3).expect("a report");
    assert_eq!(report.problems.len(), 3);
    assert!(report.more_problems > 4990 && !report.is_sound());
}

#[test]
fn a_directory_that_is_none_is_an_error() {
    assert_eq!(
        verify(Path::new("/nonexistent"), 1)
            .expect_err("no directory")
            .label(),
        "io"
    );
}

prop_compose! {
    fn any_sample()(
        prompt in 1_usize..6,
        mask in prop::collection::vec(0_u8..2, 1..8),
        log_prob in -1e6_f64..0.0,
        reward in prop_oneof![Just(json!(0)), Just(json!(1)), Just(json!(-0.5))],
        truncated in any::<bool>(),
        text in any::<String>(),
    ) -> Sample {
        let mut mask = mask;
        mask[0] = 1;
        let log_probs = mask.iter().map(|trained| if *trained == 1 { log_prob } else { 0.0 }).collect();
        Sample {
            tokens: (0..).take(prompt + mask.len()).collect(),
            response_length: mask.len(),
            loss_mask: Some(mask),
            rollout_log_probs: Some(log_probs),
            reward,
            response: text.clone(),
            prompt: json!(text),
            status: if truncated { SampleStatus::Truncated } else { SampleStatus::Completed },
            ..Sample::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_kept_in_whatever_order_is_written_sorted_and_verifies(
        groups in prop::collection::vec((any_sample(), any_sample()), 1..8),
        order in any::<prop::sample::Index>(),
        damage in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let home = Home::new();
        let writer = home.writer();
        let mut expected = Vec::new();
        for (group, (first, second)) in (0..).zip(groups) {
            for (slot, sample) in [(0, first), (1, second)] {
                expected.push(Sample { group_index: Some(group), index: Some(2 * group + slot), ..sample });
            }
        }
        let mut kept: Vec<u64> = (0..expected.len() as u64 / 2).collect();
        let middle = order.index(kept.len());
        kept.rotate_left(middle);
        for group in &kept {
            let at = usize::try_from(*group).unwrap() * 2;
            writer.keep(0, *group, &encode(&expected[at..at + 2]).unwrap()).unwrap();
        }
        writer.finish_step(&summary(0, &kept)).unwrap();
        prop_assert_eq!(decode(&home.read("samples-0.jsonl")).unwrap(), expected);
        prop_assert_eq!(problems(&home), Vec::<String>::new());

        let mut bytes = home.read("samples-0.jsonl");
        let at = damage.index(bytes.len());
        prop_assume!(bytes[at] != byte);
        bytes[at] = byte;
        fs::write(home.output().join("samples-0.jsonl"), bytes).unwrap();
        prop_assert!(!problems(&home).is_empty());
    }
}
