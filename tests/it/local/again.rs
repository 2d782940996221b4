//! The same command again, after the job has ended: it is said whose result that is, and what to do.

use std::{fs, path::Path};

use super::{
    MATH,
    run::{AGENT, Run, tempdir},
};

const EARLIER: &str = "this is the result of an earlier run in ";

async fn start(manifest: &str, output: &Path) -> (Option<i32>, String) {
    let ended = Run::start(manifest, output).end().await;
    (ended.code, ended.talk)
}

#[tokio::test]
async fn a_failure_of_an_earlier_run_is_not_told_as_new() {
    let home = tempdir();
    let output = home.path().join("out");
    let manifest = home.path().join("job.yaml");
    let path = manifest.to_str().unwrap();
    let text = fs::read_to_string(AGENT).unwrap();
    fs::write(
        &manifest,
        text.replace("import asyncio", "import no_such_module_at_all"),
    )
    .unwrap();
    let (code, talk) = start(path, &output).await;
    assert_eq!(code, Some(1), "{talk}");
    assert!(!talk.contains(EARLIER), "{talk}");
    // The module is there now; the job has ended all the same.
    fs::write(&manifest, &text).unwrap();
    for _ in 0..2 {
        let (code, talk) = start(path, &output).await;
        assert_eq!(code, Some(1), "{talk}");
        assert!(talk.contains("no_such_module_at_all"), "{talk}");
        assert!(talk.contains(EARLIER), "{talk}");
        assert!(
            talk.contains("take another --output to run the job again, or remove"),
            "{talk}"
        );
    }
    fs::remove_dir_all(&output).unwrap();
    let (code, talk) = start(path, &output).await;
    assert_eq!(code, Some(0), "{talk}");
    assert!(!talk.contains(EARLIER), "{talk}");
}

#[tokio::test]
async fn a_finished_job_is_told_as_one_of_an_earlier_run_with_its_teardown() {
    let home = tempdir();
    let output = home.path().join("out");
    let (code, first) = start(MATH, &output).await;
    assert_eq!(code, Some(0), "{first}");
    assert!(!first.contains(EARLIER), "{first}");
    let teardown = |talk: &str| {
        let line = talk.lines().find(|line| line.starts_with("teardown: "));
        line.expect("a teardown").to_owned()
    };
    assert!(teardown(&first).contains("hook NoHook"), "{first}");
    for _ in 0..2 {
        let (code, again) = start(MATH, &output).await;
        assert_eq!(code, Some(0), "{again}");
        assert!(again.contains(EARLIER), "{again}");
        assert_eq!(teardown(&again), teardown(&first), "{again}");
    }
}
