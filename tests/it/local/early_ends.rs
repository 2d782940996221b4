//! A driver that ends before it listens: the first thing that a person reads is why, with the file or directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    MATH,
    run::{self, AGENT, Run, tempdir},
};

/// What a run of a manifest says about its failure: everything from the word `error` on, with the home of the test taken out.
pub(super) async fn failure(home: &Path, manifest: &str, more: &[&str]) -> String {
    failed(home, Run::start_with(manifest, &home.join("out"), more)).await
}

async fn failed(home: &Path, run: Run) -> String {
    let ended = run.end().await;
    assert_eq!(ended.code, Some(1), "{}", ended.talk);
    let said: Vec<&str> = ended
        .talk
        .lines()
        .skip_while(|line| !line.starts_with("error: "))
        .collect();
    said.join("\n")
        .replace(&home.canonicalize().unwrap().display().to_string(), "HOME")
}

/// A manifest in the home, made from the agent's.
fn changed(home: &Path, change: impl Fn(String) -> String) -> String {
    let path = home.join("job.yaml");
    let text = fs::read_to_string(AGENT).unwrap();
    let new = change(text.clone());
    assert_ne!(new, text);
    fs::write(&path, new).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn an_empty_data_set() {
    let home = tempdir();
    let manifest = changed(home.path(), |text| {
        let (objects, _rows) = text.split_once("  train.jsonl: |\n").unwrap();
        format!("{objects}  train.jsonl: \"\\n\\n\"\n")
    });
    insta::assert_snapshot!(failure(home.path(), &manifest, &[]).await, @"error: driver: the data set HOME/out/.rollout/dataset.jsonl is empty: it has no rows (it ended before it said where it listens; its log: HOME/out/.rollout/logs/driver.log); HOME/out/.rollout/dataset.jsonl is the key train.jsonl of ConfigMap files");
}

/// The agent's manifest with its rows in a file.
fn of_url(home: &Path, file: &Path) -> String {
    let url = format!("url: file://{}", file.display());
    changed(home, |text| {
        text.replace("configMap: {name: files, key: train.jsonl}", &url)
    })
}

#[tokio::test]
async fn a_slice_beyond_the_end_of_the_data_set() {
    let home = tempdir();
    let manifest = changed(home.path(), |text| {
        text.replace(
            "    labelKey: label\n",
            "    labelKey: label\n    slice: \"[64:]\"\n",
        )
    });
    insta::assert_snapshot!(failure(home.path(), &manifest, &[]).await, @"error: driver: the slice [64:] is outside the data set HOME/out/.rollout/dataset.jsonl of 10 rows (it ended before it said where it listens; its log: HOME/out/.rollout/logs/driver.log); HOME/out/.rollout/dataset.jsonl is the key train.jsonl of ConfigMap files");
}

#[tokio::test]
async fn a_data_set_that_cannot_be_read() {
    let home = tempdir();
    let manifest = of_url(home.path(), &home.path().join("absent.jsonl"));
    insta::assert_snapshot!(failure(home.path(), &manifest, &[]).await, @"error: spec.dataset.url: HOME/absent.jsonl: No such file or directory (os error 2)");
    let manifest = of_url(home.path(), home.path());
    insta::assert_snapshot!(failure(home.path(), &manifest, &[]).await, @"error: spec.dataset.url: HOME: is a directory");
}

#[tokio::test]
async fn a_volume_that_is_missing() {
    let home = tempdir();
    let manifest = changed(home.path(), |text| {
        let claim = "persistentVolumeClaim: {claimName: prompts, path: train.jsonl}";
        text.replace("configMap: {name: files, key: train.jsonl}", claim)
    });
    insta::assert_snapshot!(failure(home.path(), &manifest, &[]).await, @"error: spec.dataset.persistentVolumeClaim: without a cluster the claim 'prompts' is a directory: say which with --volume prompts=DIR");
    let volume = format!("prompts={}", home.path().join("absent").display());
    let failure = failure(home.path(), &manifest, &["--volume", &volume]).await;
    insta::assert_snapshot!(failure, @"error: spec.dataset.persistentVolumeClaim: HOME/absent/train.jsonl: No such file or directory (os error 2)");
}

/// A directory of a finished job, which can be harmed.
struct Finished {
    home: tempfile::TempDir,
}

impl Finished {
    async fn job() -> Self {
        let home = tempdir();
        let ended = Run::start(MATH, &home.path().join("out")).end().await;
        assert_eq!(ended.code, Some(0), "{}", ended.talk);
        Self { home }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.home.path().join("out").join(file)
    }

    /// What the next start says.
    async fn failure(&self) -> String {
        failure(self.home.path(), MATH, &[]).await
    }
}

#[tokio::test]
async fn a_ledger_that_cannot_be_used() {
    let job = Finished::job().await;
    let ledger = job.path(".rollout/ledger/ledger.sqlite");
    let sound = fs::read(&ledger).unwrap();

    // The user version is in the header, which every page cache begins with.
    let mut newer = sound.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&ledger, newer).unwrap();
    insta::assert_snapshot!(job.failure().await, @"error: driver: the ledger HOME/out/.rollout/ledger/ledger.sqlite has version 99, this driver reads version 1: use the version of the operator that wrote it, or move the file away to begin anew (it ended before it said where it listens; its log: HOME/out/.rollout/logs/driver.log)");

    fs::write(&ledger, "no database at all, but some text").unwrap();
    insta::assert_snapshot!(job.failure().await, @"error: driver: the ledger HOME/out/.rollout/ledger is damaged: file is not a database; move it away to begin anew (it ended before it said where it listens; its log: HOME/out/.rollout/logs/driver.log)");

    fs::write(&ledger, &sound).unwrap();
    assert_eq!(Run::start(MATH, &job.path("")).end().await.code, Some(0));
}

#[tokio::test]
async fn no_space_for_the_ledger() {
    let home = tempdir();
    let output = home.path().join("out");
    let run = Run::start_on_a_full_disk(24, AGENT, &output);
    insta::assert_snapshot!(failed(home.path(), run).await, @"error: driver: the ledger in HOME/out/.rollout/ledger cannot be read or written: a full disk or quota, a limit on the size of files, or a disk that fails; the next start continues: disk I/O error: Error code 4874: disk I/O error (it ended with exit status: 1 before it said where it listens; its log: HOME/out/.rollout/logs/driver.log)");
    let ended = Run::start(AGENT, &output).end().await;
    assert_eq!(
        ended.code,
        Some(0),
        "the next start continues: {}",
        ended.talk
    );
}

#[tokio::test]
async fn no_space_for_the_data_set() {
    let home = tempdir();
    let output = home.path().join("out");
    let run = Run::start_on_a_full_disk(6, MATH, &output);
    insta::assert_snapshot!(failed(home.path(), run).await, @"error: no space left to write HOME/out/.rollout/dataset.jsonl: nothing of it was written; free some, the same command goes on where it was: File too large (os error 27)");
    assert!(!output.join(".rollout/dataset.tmp").exists());
    assert_eq!(Run::start(MATH, &output).end().await.code, Some(0));
}

#[tokio::test]
async fn an_output_directory_of_another_job() {
    let job = Finished::job().await;
    let stamp = job.path(".rollout/output.json");
    let text = fs::read_to_string(&stamp).unwrap();
    let owner: serde_json::Value = serde_json::from_str(&text).unwrap();
    let uid = owner["job"]["uid"].as_str().unwrap();
    fs::write(&stamp, text.replace(uid, "uid-of-another")).unwrap();
    insta::assert_snapshot!(job.failure().await.replace(uid, "UID"), @"error: driver: output: HOME/out is the output of job default/math (uid uid-of-another), not of default/math (uid UID); choose another output directory (it ended before it said where it listens; its log: HOME/out/.rollout/logs/driver.log)");

    fs::remove_file(&stamp).unwrap();
    insta::assert_snapshot!(job.failure().await, @"error: driver: output: HOME/out holds manifest.json, but no record of the job that wrote it; choose another output directory (it ended before it said where it listens; its log: HOME/out/.rollout/logs/driver.log)");
}

#[tokio::test]
async fn a_file_of_the_output_that_is_lost() {
    let job = Finished::job().await;
    fs::remove_file(job.path("samples-0.jsonl")).unwrap();
    fs::remove_dir_all(job.path(".rollout/ledger")).unwrap();
    insta::assert_snapshot!(job.failure().await, @"error: driver: output: HOME/out/samples-0.jsonl is not the file that manifest.json describes: it is missing; the ledger does not have its samples any more, so put the file back, or start over in an empty output directory (it ended before it said where it listens; its log: HOME/out/.rollout/logs/driver.log)");
}

#[tokio::test]
async fn a_driver_that_is_killed_as_it_starts_is_started_again() {
    let home = tempdir();
    let output = home.path().join("out");
    let mut run = Run::start(AGENT, &output);
    run.kill_child(" driver ").await;
    let ended = run.end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    assert!(ended.talk.contains("is started again"), "{}", ended.talk);
    run::verify(&output).await;
}

/// The agent's manifest with a reward of its own.
fn with_reward(home: &Path, code: &str) -> String {
    changed(home, |text| {
        let plugin = "  reward: {type: Plugin, plugin: {path: rewards.score}}\n  plugins: {image: \"i:1\", code: {configMap: {name: files}}}\n  backoffLimit: 1\n";
        let text = text.replace("  reward:\n    type: Math\n", plugin);
        format!("{text}  rewards.py: {code}\n")
    })
}

#[tokio::test]
async fn a_function_that_is_not_there_ends_the_job_at_once() {
    let home = tempdir();
    let manifest = with_reward(home.path(), "import os");
    let said = failure(home.path(), &manifest, &[]).await;
    assert!(said.starts_with("error: ValidationFailed: "), "{said}");
    assert!(said.contains("has no function 'score'"), "{said}");
}

#[tokio::test]
async fn a_driver_that_fails_again_and_again_is_told_with_its_reason() {
    let home = tempdir();
    let manifest = with_reward(home.path(), "import os; os._exit(3)");
    insta::assert_snapshot!(failure(home.path(), &manifest, &[]).await, @"error: BackoffLimitExceeded: driver: spec.reward: rewards.score: the plug-in host ended during the call, 2 times (it ended 2 times, at last with exit status: 1; its log: HOME/out/.rollout/logs/driver.log)");
}
