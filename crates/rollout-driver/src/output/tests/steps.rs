//! What a step writes.

use super::*;

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
    let notes: Vec<&str> = report.notes.iter().map(|note| note.0.as_str()).collect();
    assert_eq!(
        notes,
        [
            "step 1 is not finished: 1 kept groups wait in parts",
            "the job has no result yet: it was interrupted, has crashed, or still runs; the same job started again goes on where it was",
        ]
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

/// The ledger's directory was removed while its driver ran: a step without its groups would pass for finished, and its parts would be gone.
#[test]
fn a_step_whose_groups_are_not_listed_is_not_finished() {
    let home = Home::new();
    let writer = home.writer();
    keep(&writer, 0, 0);
    let error = writer
        .finish_step(&StepSummary {
            kept: Vec::new(),
            ..summary(0, &[0])
        })
        .expect_err("a group is missing");
    assert_eq!(error.label(), "wrong_count");
    assert_eq!(writer.finished(0), None);
    assert_eq!(writer.recover(0).expect("parts").groups.len(), 1);
}

/// A limit on the size of files stands for a full disk: the kernel takes part of a write and refuses the rest.
#[test]
fn a_full_disk_is_an_error_and_leaves_nothing_half_written() {
    let home = Home::new();
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact output::tests::steps::writes_more_than_fits --ignored";
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
