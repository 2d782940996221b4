//! What `tests/cluster/run.sh` repeats at the end of a failed run.

use std::io::Write;
use std::process::{Command, Stdio};

/// What is said about a test program's output.
fn said(output: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/failures.awk");
    let mut awk = Command::new("awk")
        .args(["-f", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = awk.stdin.take().unwrap();
    input.write_all(output.as_bytes()).unwrap();
    drop(input);
    let ended = awk.wait_with_output().unwrap();
    assert!(ended.status.success());
    String::from_utf8(ended.stdout).unwrap()
}

fn failed(name: &str, log: &str) -> String {
    format!(
        "---- {name} stdout ----\n\nthread '{name}' panicked at x.rs:1:2:\nnot in time\n{log}\n"
    )
}

#[test]
fn failures_are_found_with_their_panics_and_names() {
    let output = format!(
        "running 3 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n{}{}\nfailures:\n    b\n    c::d\n\ntest result: FAILED. 1 passed; 2 failed\n\n",
        failed("b", "failures: in a log"),
        failed("c::d", ""),
    );
    assert_eq!(
        said(&output),
        "---- b stdout ----\nthread 'b' panicked at x.rs:1:2:\nnot in time\nfailures: in a log\n\
         ---- c::d stdout ----\nthread 'c::d' panicked at x.rs:1:2:\nnot in time\n\
         failures:\n    b\n    c::d\ntest result: FAILED. 1 passed; 2 failed\n"
    );
}

/// The first lines have the panic; a long log of one test leaves room for the others.
#[test]
fn long_output_of_a_test_is_cut() {
    let log = format!("{}\n", "x".repeat(1000)).repeat(200);
    let output = format!(
        "failures:\n\n{}{}\nfailures:\n    b\n    c\n\ntest result: FAILED.\n",
        failed("b", &log),
        failed("c", &log),
    );
    let said = said(&output);
    assert!(said.lines().count() <= 60, "{said}");
    assert!(said.contains("thread 'b' panicked") && said.contains("thread 'c' panicked"));
    assert!(said.ends_with("    c\ntest result: FAILED.\n"), "{said}");
    assert!(said.lines().all(|line| line.len() <= 400));
}

#[test]
fn tests_that_were_cut_off_show_their_last_lines() {
    let lines: Vec<_> = (0..30).map(|line| format!("line {line}\n")).collect();
    assert_eq!(said(&lines.concat()), lines[20..].concat());
}

/// A part that passed before the one that failed is no failure.
#[test]
fn parts_that_passed_say_nothing() {
    let passed = "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed\n\n";
    let output = format!(
        "{passed}failures:\n\n{}\nfailures:\n    b\n\ntest result: FAILED.\n",
        failed("b", "")
    );
    assert!(said(&output).starts_with("---- b stdout ----\n"));
}
