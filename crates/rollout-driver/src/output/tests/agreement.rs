//! What only shows when the parts of an output are held against each other: result against steps, ids against text, names against the layout.

use rollout_tokenizer::Tokenizer;
use sha2::{Digest, Sha256};

use super::*;
use crate::digest::hex;

fn edit_manifest(home: &Home, edit: impl FnOnce(&mut Value)) {
    let path = home.output().join("manifest.json");
    let mut manifest = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
    edit(&mut manifest);
    fs::write(&path, manifest.to_string()).expect("written");
}

#[test]
fn the_result_agrees_with_the_steps() {
    let after = |edit: &dyn Fn(&mut Value)| {
        let home = sound();
        edit_manifest(&home, edit);
        problems(&home).join("\n")
    };
    let found = [
        after(&|manifest| manifest["steps"] = json!([])),
        after(&|manifest| {
            manifest["steps"] = json!([]);
            manifest["result"]["ledger"] = json!(Tally::default());
        }),
        after(&|manifest| drop(manifest["steps"].as_array_mut().expect("steps").pop())),
        after(&|manifest| drop(manifest["steps"].as_array_mut().expect("steps").remove(0))),
        after(&|manifest| manifest["result"]["success"] = json!(false)),
        after(&|manifest| manifest["result"]["reason"] = json!("DeadlineExceeded")),
        after(&|manifest| {
            manifest["result"]["ledger"]["kept"] = json!(3);
            manifest["result"]["ledger"]["taken"] = json!(5);
        }),
        after(&|manifest| {
            manifest["steps"][0]["ledger"]["kept"] = json!(u64::MAX);
            manifest["steps"][0]["ledger"]["taken"] = json!(u64::MAX);
        }),
    ];
    insta::assert_snapshot!(found.join("\n--\n"), @r"
    manifest.json: result.ledger.kept: is 4, the files of all steps have 0 groups
    manifest.json: result.ledger.taken: is 6, the ledgers of the steps sum up to 0
    manifest.json: result.reason: is TargetReached, but there is no step
    --
    manifest.json: result.reason: is TargetReached, but there is no step
    --
    manifest.json: result.ledger.kept: is 4, the files of all steps have 2 groups
    manifest.json: result.ledger.taken: is 6, the ledgers of the steps sum up to 3
    --
    manifest.json: steps: has step 1 where step 0 belongs
    manifest.json: result.ledger.kept: is 4, the files of all steps have 2 groups
    manifest.json: result.ledger.taken: is 6, the ledgers of the steps sum up to 3
    --
    manifest.json: result.success: is false, but the reason is TargetReached
    --
    manifest.json: result.success: is true, but the reason is DeadlineExceeded
    --
    manifest.json: result.ledger.kept: is 3, the files of all steps have 4 groups
    manifest.json: result.ledger.taken: is 5, the ledgers of the steps sum up to 6
    --
    manifest.json: step 0.ledger.taken: is 18446744073709551615, the states sum up to 18446744073709551616
    manifest.json: step 0.ledger.kept: is 18446744073709551615, samples-0.jsonl has 2 groups
    manifest.json: result.ledger.taken: is 6, the ledgers of the steps sum up to 18446744073709551618
    ");
}

#[test]
fn a_ledger_that_was_begun_anew_leaves_the_result_the_sum_of_the_steps() {
    let home = sound();
    let result = ResultEntry {
        ledger: Tally::default(),
        ..decided()
    };
    home.writer().decide(result).expect("decided");
    assert_eq!(home.writer().result(), Some(decided()));
    assert_eq!(problems(&home), Vec::<String>::new());
}

/// One step with one group of two samples, one of them changed; the manifest has the hashes and counts of what is there.
fn rewritten(tokenizer: Option<&str>, change: impl FnOnce(&mut Sample)) -> Report {
    let home = Home::new();
    let builtin = Tokenizer::builtin().expect("the built-in tokenizer");
    let ids = |text: &str| {
        builtin
            .encode(text)
            .expect("ids")
            .into_iter()
            .map(i64::from)
    };
    let spoken = |slot| {
        let response: Vec<i64> = ids("it is \\boxed{4}, so é<|im_end|>").collect();
        Sample {
            tokens: ids("What is 2+2?")
                .chain(response.iter().copied())
                .collect(),
            response: "it is \\boxed{4}, so é".into(),
            response_length: response.len(),
            loss_mask: Some(vec![1; response.len()]),
            rollout_log_probs: Some(vec![-0.5; response.len()]),
            ..sample(0, slot)
        }
    };
    let mut samples = [spoken(0), spoken(1)];
    change(&mut samples[1]);
    let writer = home
        .open(|config| config.tokenizer = tokenizer.map(str::to_owned))
        .expect("a writer");
    let kept: Vec<u8> = samples
        .iter()
        .flat_map(|sample| {
            serde_json::to_string(sample)
                .expect("JSON")
                .into_bytes()
                .into_iter()
                .chain(*b"\n")
        })
        .collect();
    writer.keep(0, 0, &kept).expect("kept");
    writer.finish_step(&summary(0, &[0])).expect("finished");
    assert_eq!(
        hex(Sha256::new_with_prefix(&kept)),
        entry_of(&home, "samples-0.jsonl").samples.sha256
    );
    verify(&home.output(), 10).expect("a report")
}

fn said(report: &Report) -> String {
    let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
    format!(
        "{} compared; {}",
        report.steps[0].compared,
        problems.join("; ")
    )
}

#[test]
fn what_ids_and_text_say_is_compared_where_the_tokenizer_is_at_hand() {
    let hello = |sample: &mut Sample| sample.response = "hello".into();
    let other_token = |sample: &mut Sample| {
        let place = sample.tokens.len() - 4;
        sample.tokens[place] += 1;
    };
    let huge = |sample: &mut Sample| sample.tokens[2] = 1_000_000_000;
    let found = [
        said(&rewritten(Some("builtin"), |_| {})),
        said(&rewritten(Some("builtin"), hello)),
        said(&rewritten(Some("builtin"), other_token)),
        said(&rewritten(Some("builtin"), huge)),
        said(&rewritten(Some("builtin"), |sample| {
            sample.response.push_str("<|im_end|>");
        })),
        said(&rewritten(Some("builtin"), |sample| {
            sample.response.push('!');
        })),
        said(&rewritten(None, hello)),
        said(&rewritten(None, huge)),
        said(&rewritten(Some("directory qwen"), |sample| {
            sample.tokens[0] = 1 << 24;
        })),
        said(&rewritten(Some("directory qwen"), |sample| {
            sample.tokens[0] = (1 << 24) + 1;
        })),
    ];
    insta::assert_snapshot!(found.join("\n"), @r#"
    2 compared; 
    1 compared; samples-0.jsonl:2: response: is not what its ids spell: from character 0 it says "hello", they say "it is \\boxed{4}, so "
    1 compared; samples-0.jsonl:2: response: is not what its ids spell: from character 19 it says " é", they say "\u{7f}é<|im_end|>"
    1 compared; samples-0.jsonl:2: tokens: the id at 2 is 1000000000, above 1023, the highest of the built-in tokenizer
    2 compared; 
    1 compared; samples-0.jsonl:2: response: is not what its ids spell: from character 21 it says "!", they say "<|im_end|>"
    0 compared; 
    0 compared; samples-0.jsonl:2: tokens: the id at 2 is 1000000000, above 16777216, the highest that any tokenizer is taken to have
    0 compared; 
    0 compared; samples-0.jsonl:2: tokens: the id at 0 is 16777217, above 16777216, the highest that any tokenizer is taken to have
    "#);
}

#[test]
fn what_was_not_checked_is_said() {
    let of = |tokenizer| rewritten(tokenizer, |_| {}).scope.expect("a scope");
    assert!(
        of(Some("builtin"))
            .checked
            .iter()
            .any(|what| what.contains("2 of 2 kept responses"))
    );
    let opaque = of(Some("directory qwen")).not_checked.join("; ");
    assert!(
        opaque.contains("ids against text") && opaque.contains("directory qwen"),
        "{opaque}"
    );
}

#[test]
fn numbers_beyond_all_sums_are_problems_and_no_panic() {
    let report = rewritten(None, |sample| {
        sample.response_length = usize::MAX;
        sample.loss_mask = None;
        sample.prefix_cache_info.cached_tokens = i64::MAX;
    });
    assert!(!report.is_sound());
}

#[test]
fn no_file_outside_the_layout_is_named_or_read() {
    let names = [
        "../../../../etc/passwd",
        "/etc/passwd",
        "manifest.json",
        "samples-1.jsonl",
        ".rollout/output.json",
        "",
        "\u{1b}[2J",
    ];
    for name in names {
        for field in ["samples", "extra"] {
            let home = sound();
            edit_manifest(&home, |manifest| {
                manifest["steps"][0][field] = manifest["steps"][0]["samples"].clone();
                manifest["steps"][0][field]["file"] = json!(name);
            });
            let expected = format!(
                "manifest.json: step 0.{field}.file is {name:?}, expected {field}-0.jsonl; no other file is read"
            );
            assert_eq!(problems(&home), [expected]);
            let refused = home
                .open(|_| {})
                .expect_err("a driver does not use it either");
            assert_eq!(refused.label(), "broken");
        }
    }
}

#[test]
fn a_link_or_a_directory_in_the_place_of_a_file_is_not_followed() {
    let home = sound();
    let elsewhere = home.root.path().join("elsewhere.jsonl");
    fs::rename(home.output().join("samples-0.jsonl"), &elsewhere).expect("moved");
    std::os::unix::fs::symlink(&elsewhere, home.output().join("samples-0.jsonl")).expect("a link");
    fs::remove_file(home.output().join("samples-1.jsonl")).expect("removed");
    fs::create_dir(home.output().join("samples-1.jsonl")).expect("made");
    let found = problems(&home);
    for file in ["samples-0.jsonl", "samples-1.jsonl"] {
        let words = format!("{file}: it is no plain file but a link");
        assert!(
            found.iter().any(|problem| problem.starts_with(&words)),
            "{found:?}"
        );
    }
}
