//! What objects carry, read by the programs that will read it: rows of data sets, scripts of simulated engines.

use std::process::Command;

use super::fixture;

/// What the command says about a folder, with the paths of files made short.
fn validate(folder: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rollout-operator"))
        .args(["validate", "."])
        .current_dir(fixture(folder))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn rows_and_scripts_are_read_as_the_driver_and_the_engine_read_them() {
    insta::assert_snapshot!("contents", validate("contents"));
}

#[test]
fn a_finding_is_a_line() {
    for line in validate("contents").lines() {
        assert!(line.starts_with("./"), "{line}");
    }
}
