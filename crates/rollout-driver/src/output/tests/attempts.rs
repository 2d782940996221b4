//! Crashes, later attempts, and directories of others.

use super::*;

#[test]
fn a_crash_between_file_and_manifest_is_repaired_with_the_same_content() {
    let home = sound();
    let (samples, manifest) = (home.read("samples-1.jsonl"), home.read("manifest.json"));
    // As if the crash came after samples-1.jsonl: the manifest is the one before, the parts are there, a temporary file too.
    let mut before: Manifest = serde_json::from_slice(&manifest).expect("a manifest");
    before.steps.pop();
    before.result = None;
    fs::write(
        home.output().join("manifest.json"),
        serde_json::to_vec(&before).expect("JSON"),
    )
    .expect("written");
    fs::write(home.output().join(".manifest.json.tmp"), "{\"ver").expect("written");
    let report = verify(&home.output(), 10).expect("a report");
    assert!(report.is_sound());
    assert_eq!(
        report.notes[0].0,
        "samples-1.jsonl is not in the manifest: its step was not finished"
    );

    let writer = home.writer();
    keep(&writer, 1, 2);
    keep(&writer, 1, 3);
    writer.finish_step(&summary(1, &[2, 3])).expect("finished");
    assert_eq!(writer.result(), None, "a step is no end");
    writer.decide(decided()).expect("decided");
    assert_eq!(
        (home.read("samples-1.jsonl"), home.read("manifest.json")),
        (samples, manifest)
    );
    assert!(!home.output().join(".manifest.json.tmp").exists());
}

#[test]
fn another_attempt_finds_what_was_kept() {
    let home = Home::new();
    let first = home.writer();
    keep(&first, 0, 5);
    keep(&first, 0, 1);
    let parts = home.output().join(".rollout/parts/0");
    fs::write(parts.join(".kept-9.jsonl.tmp"), "half").expect("written");
    fs::write(parts.join("kept-8.jsonl"), "{\"status\": \"comp").expect("written");

    let second = home
        .open(|config| config.job.attempt = 2)
        .expect("a writer");
    let recovered = second.recover(0).expect("parts");
    let groups: Vec<_> = recovered
        .groups
        .iter()
        .map(|part| (part.group, part.samples.len()))
        .collect();
    assert_eq!(groups, [(1, 2), (5, 2)]);
    assert_eq!(recovered.groups[0].rows, encode(&group(1)).expect("rows"));
    assert_eq!(recovered.broken.len(), 1);
    assert_eq!(
        home.text(&recovered.broken[0]),
        "broken: DIR/out/.rollout/parts/0/kept-8.jsonl cannot be used: line 1: the line does not end"
    );
    assert!(!parts.join(".kept-9.jsonl.tmp").exists());
    assert!(second.recover(3).expect("no parts").groups.is_empty());
}

#[test]
fn a_late_writer_is_refused_and_changes_nothing() {
    let home = Home::new();
    let late = home.writer();
    keep(&late, 0, 0);
    let new = home
        .open(|config| config.job.attempt = 2)
        .expect("a writer");
    let rows = encode(&group(1)).expect("rows");
    let error = late.keep(0, 1, &rows).expect_err("superseded");
    assert_eq!(
        home.text(&error),
        "superseded: attempt 1 may no longer write to DIR/out: attempt 2 took it over"
    );
    assert_eq!(
        late.finish_step(&summary(0, &[0]))
            .expect_err("superseded")
            .label(),
        "superseded"
    );
    assert!(!home.output().join("samples-0.jsonl").exists());
    assert_eq!(new.recover(0).expect("parts").groups.len(), 1);

    let error = home.open(|_| {}).expect_err("an older attempt");
    assert_eq!(error.label(), "superseded");
    // Two processes of one attempt: the one that came last writes.
    let third = home
        .open(|config| config.job.attempt = 2)
        .expect("a writer");
    assert_eq!(
        new.keep(0, 1, &rows).expect_err("superseded").label(),
        "superseded"
    );
    third.keep(0, 1, &rows).expect("kept");
}

#[test]
fn a_directory_of_another_job_is_refused() {
    let home = sound();
    let error = home
        .open(|config| config.job.uid = "u-2".into())
        .expect_err("another job");
    assert_eq!(
        home.text(&error),
        "other_job: DIR/out is the output of job rl/swe (uid u-1), not of rl/swe (uid u-2); choose another output directory"
    );
    fs::remove_dir_all(home.output().join(".rollout")).expect("removed");
    let error = home.open(|_| {}).expect_err("unknown owner");
    assert_eq!(
        home.text(&error),
        "unknown_owner: DIR/out holds manifest.json, but no record of the job that wrote it; choose another output directory"
    );
    fs::create_dir_all(home.output().join(".rollout")).expect("made");
    fs::write(home.output().join(".rollout/output.json"), "{}").expect("written");
    assert_eq!(home.open(|_| {}).expect_err("broken").label(), "broken");
}
