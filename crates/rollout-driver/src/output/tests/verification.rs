//! What the verifier says of sound and of damaged directories.

use super::*;

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
                    .replace("samples-1.jsonl", "samples-0.jsonl")
            });
        }),
        damaged(&|root| fs::write(path(root, "extra-0.jsonl"), "").expect("written")),
        damaged(&|root| {
            edit(root, "manifest.json", &|text| {
                text.replace("\"taken\": 6", "\"taken\": 7").replacen(
                    "\"complete\": true",
                    "\"complete\": false",
                    1,
                )
            });
        }),
        damaged(&|root| {
            fs::remove_dir_all(root)
                .and_then(|()| fs::create_dir(root))
                .expect("emptied");
        }),
    ];
    insta::assert_snapshot!(found.join("\n--\n"), @r#"
    samples-1.jsonl: is missing, but the manifest names it
    manifest.json: result.ledger.kept: is 4, the files of all steps have 2 groups
    manifest.json: result.reason: is TargetReached, but step 1 has no groups
    --
    manifest.json: it has version 2, expected 1
    --
    manifest.json: EOF while parsing a string at line 4 column 11
    --
    manifest.json: is not there: no step is finished; the job has no result yet: it was interrupted, has crashed, or still runs; the same job started again goes on where it was
    --
    manifest.json: step 0.ledger.taken: is 4, the states sum up to 3
    manifest.json: step 1.ledger.taken: is 4, the states sum up to 3
    manifest.json: result.ledger.taken: is 6, the ledgers of the steps sum up to 8
    --
    manifest.json: step 0.ledger.taken: is 3, the states sum up to 2
    manifest.json: step 0.ledger.kept: is 1, samples-0.jsonl has 2 groups
    manifest.json: step 1.ledger.taken: is 3, the states sum up to 2
    manifest.json: step 1.ledger.kept: is 1, samples-1.jsonl has 2 groups
    --
    manifest.json: step 0.metrics.rollout/raw_reward: is 0.7, the samples give 0.5
    manifest.json: step 1.metrics.rollout/raw_reward: is 0.7, the samples give 0.5
    --
    manifest.json: steps: has step 0 where step 1 belongs
    manifest.json: result.ledger.kept: is 4, the files of all steps have 2 groups
    --
    extra-0.jsonl: is not in the manifest, and its step is finished
    --
    manifest.json: result.ledger.taken: is 7, the states sum up to 6
    manifest.json: result.ledger.taken: is 7, the ledgers of the steps sum up to 6
    manifest.json: result.reason: is TargetReached, but step 0 is not complete
    --
    manifest.json: is not there, and nothing else of a job: this is no output directory
    "#);
}

fn hash_of(home: &Home, name: &str) -> String {
    entry_of(home, name).samples.sha256
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
