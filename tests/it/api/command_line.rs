//! `rollout-operator crds` and `rollout-operator validate` as a person runs them.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::manifests::fixture;

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rollout-operator"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A child that reads nothing may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn good_files_pass_silently() {
    let good = fixture("good/quickstart.yaml");
    for flags in [&["validate"][..], &["validate", "--local"]] {
        let output = run(&[flags, &[good.to_str().unwrap()]].concat(), "");
        assert!(output.status.success());
        assert_eq!(text(&output.stdout), "");
        assert_eq!(
            text(&output.stderr),
            "3 objects, 0 errors, 0 warnings, 0 notes\n"
        );
    }
}

#[test]
fn what_a_cluster_may_have_is_a_note_and_without_a_cluster_an_error() {
    let job = fixture("good/container.json");
    let output = run(&["validate", job.to_str().unwrap()], "");
    assert!(output.status.success());
    let line = text(&output.stdout);
    let note = "note: spec.poolRef.name: SGLangPool/shared is not in these files: the cluster must have it";
    assert!(line.contains(note), "{line}");
    let output = run(&["validate", "--local", job.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(1));
    let line = text(&output.stdout);
    let error =
        ": spec.poolRef.name: SGLangPool/shared is not in these files: add the file that has it";
    assert!(line.contains(error) && !line.contains("note: "), "{line}");
}

#[test]
fn a_refused_file_is_exit_code_1_and_a_line_per_error() {
    let bad = fixture("bad/reward.yaml");
    let output = run(&["validate", bad.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(1));
    let line = text(&output.stdout);
    let expected =
        ":1 RolloutJob/remote-without-url: spec.reward.remote: type Remote needs remote.url";
    assert!(line.contains(expected), "{line}");
}

#[test]
fn standard_input_is_a_file() {
    let output = run(
        &["validate", "-"],
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
    );
    assert!(output.status.success());
    let output = run(&["validate", "-"], "a: [\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).starts_with("-:1: "),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn nothing_to_check_is_an_error() {
    let output = run(&["validate", "-"], "");
    assert!(!output.status.success());
    let output = run(&["validate", "/nowhere.yaml"], "");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn programs_read_json() {
    let bad = fixture("bad/dataset.yaml");
    let output = run(&["validate", "-o", "json", bad.to_str().unwrap()], "");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["objects"], 16);
    let findings = report["findings"].as_array().unwrap();
    let first = findings
        .iter()
        .find(|finding| finding["severity"] == "error")
        .unwrap();
    assert_eq!(first["kind"], "RolloutJob");
    assert_eq!(first["name"], "no-source");
    assert_eq!(first["document"], 1);
    assert_eq!(first["path"], "spec.dataset");
    assert!(first["line"].is_u64());
}

#[test]
fn definitions_go_to_standard_output_or_to_files() {
    let output = run(&["crds"], "");
    let stream = text(&output.stdout);
    assert_eq!(
        stream.matches("\nkind: CustomResourceDefinition\n").count(),
        2
    );
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("new/crds");
    assert!(
        run(&["crds", "--dir", target.to_str().unwrap()], "")
            .status
            .success()
    );
    let files = ["sglangpools.yaml", "rolloutjobs.yaml"]
        .map(|f| std::fs::read_to_string(target.join(f)).unwrap());
    assert_eq!(stream, format!("---\n{}---\n{}", files[0], files[1]));
}
