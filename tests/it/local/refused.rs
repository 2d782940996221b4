//! What is refused before anything starts: nothing is left behind, and the message says what to do.

use super::{
    MATH,
    run::{AGENT, Run, tempdir},
};

/// What a start with these arguments says.
async fn refused(manifest: &str, more: &[&str]) -> String {
    let home = tempdir();
    let output = home.path().join("out");
    let ended = Run::start_with(manifest, &output, more).end().await;
    assert_eq!(ended.code, Some(1), "{}", ended.talk);
    assert!(!output.exists(), "{}", ended.talk);
    ended.talk
}

#[tokio::test]
async fn a_wrong_manifest() {
    let home = tempdir();
    let manifest = home.path().join("job.yaml");
    let text = std::fs::read_to_string(MATH)
        .unwrap()
        .replace("batchSize: 12", "batchSize: 2");
    std::fs::write(&manifest, text).unwrap();
    let talk = refused(manifest.to_str().unwrap(), &[]).await;
    assert!(talk.contains("spec.rollout.overSampling"), "{talk}");
}

#[tokio::test]
async fn an_interpreter_that_is_none() {
    let home = tempdir();
    let directory = home.path().to_str().unwrap();
    for (python, problem) in [
        ("/no/such/python", "there is no such program"),
        ("no-such-python-on-the-path", "there is no such program"),
        (directory, "it is a directory"),
        (AGENT, "it is not executable"),
        ("/bin/sh", "it is no Python"),
    ] {
        let talk = refused(AGENT, &["--python", python]).await;
        assert!(
            talk.contains(&format!("--python {python}: {problem}")),
            "{talk}"
        );
        assert!(
            talk.contains("name a Python 3.9 or later with --python PATH"),
            "{talk}"
        );
    }
}

#[tokio::test]
async fn an_interpreter_that_is_none_also_where_nothing_needs_one() {
    let talk = refused(MATH, &["--python", "/no/such/python"]).await;
    assert!(talk.contains("there is no such program"), "{talk}");
}
