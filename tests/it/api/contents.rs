//! What the command says about folders: rows of data sets and scripts of simulated engines, read by the programs that will read them;
//! and what people write by mistake.

use std::process::Command;

use crate::manifests::fixture;

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
fn every_slip_is_told_with_what_to_write_instead() {
    insta::assert_snapshot!("slips", validate("slips"));
}

#[test]
fn a_finding_is_a_line() {
    for line in (validate("contents") + &validate("slips")).lines() {
        assert!(line.starts_with("./"), "{line}");
    }
}

/// Objects that are right by themselves: the first of two of a name, and what others refer to.
const SOUND: [&str; 2] = ["./two-of-a-name.yaml:1", "./yaml-1.1.yaml:11"];

#[test]
fn no_slip_passes_in_silence() {
    let said = validate("slips");
    let sources = super::read("slips");
    assert!(sources.documents.len() > 60, "{}", sources.documents.len());
    let root = format!("{}/", fixture("slips").display());
    for document in &sources.documents {
        let place = format!("./{}:{}", document.file.replace(&root, ""), document.index);
        let is_told = said.lines().any(|line| {
            line.strip_prefix(place.as_str())
                .is_some_and(|rest| rest.starts_with([' ', ':']))
        });
        assert!(is_told || SOUND.contains(&place.as_str()), "{place}");
    }
}
