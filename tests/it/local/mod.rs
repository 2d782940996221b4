//! `rollout-operator local` as a person runs it: real child processes, real Python, and `kill -9` of each of them.

mod again;
mod bad_agents;
mod data_by_url;
mod early_ends;
mod encrypted;
mod environment;
mod outages;
mod plugins;
mod refused;
mod run;
mod workplaces;

use std::{path::Path, time::Duration};

use nix::sys::signal::Signal;
use run::{AGENT, Run, tempdir};

const MATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/math/job.yaml");

#[tokio::test]
async fn a_single_turn_job_from_manifest_to_samples() {
    let home = tempdir();
    let output = home.path().join("out");
    let ended = Run::start(MATH, &output).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    assert!(ended.talk.contains("TargetReached"), "{}", ended.talk);
    assert!(
        ended
            .talk
            .contains("spec.output (claim math-samples) is where they go on a cluster"),
        "{}",
        ended.talk
    );
    run::verify(&output).await;
    assert_eq!(run::rows(&output).len(), 32);
}

#[tokio::test]
async fn an_agent_job_tears_down_its_surplus_and_calls_the_hook() {
    let home = tempdir();
    let output = home.path().join("out");
    let manifest = run::slow_agent(home.path());
    let ended = Run::start(&manifest, &output).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    run::verify(&output).await;
    for row in run::rows(&output) {
        assert_eq!(
            row["weight_versions"].as_array().map(Vec::len),
            Some(2),
            "two turns in one sample: {row}"
        );
    }
    let word = run::last_word(&output);
    assert_eq!(word["teardown"]["hook"], "HookSucceeded", "{word}");
    assert!(
        run::logs(&output).contains("abort hook of 0"),
        "the hook ran in the agents' process"
    );
}

#[tokio::test]
async fn logs_name_sessions_and_open_none() {
    let home = tempdir();
    let output = home.path().join("out");
    let ended = Run::start(AGENT, &output).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    let logs = run::logs(&output);
    assert!(logs.contains("session="), "{logs}");
    for text in [&logs, &ended.talk] {
        let ids = text.split(|character: char| !character.is_ascii_hexdigit());
        let whole: Vec<&str> = ids.filter(|run| run.len() >= 32).collect();
        assert!(whole.is_empty(), "{whole:?} in:\n{text}");
    }
}

#[tokio::test]
async fn the_hook_is_called_for_agents_that_end_with_their_aborted_request() {
    let home = tempdir();
    let manifest = home.path().join("job.yaml");
    let text = std::fs::read_to_string(AGENT).unwrap();
    let waits = "                # An agent that does not see that the rollout is over: what ends it is its launcher.\n                await asyncio.sleep(600)\n";
    assert!(text.contains(waits));
    let text = text
        .replace(waits, "                return\n")
        .replace("decodeTokensPerSecond: 100", "decodeTokensPerSecond: 20")
        .replace("batchSize: 4", "batchSize: 1");
    std::fs::write(&manifest, text).unwrap();
    let output = home.path().join("out");
    let ended = Run::start(manifest.to_str().unwrap(), &output).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    let word = run::last_word(&output);
    assert_ne!(word["teardown"]["fencedSessions"], 0, "{word}");
    assert_eq!(word["teardown"]["hook"], "HookSucceeded", "{word}");
    assert!(run::logs(&output).contains("abort hook of 0"), "{word}");
    run::verify(&output).await;
}

#[tokio::test]
async fn killed_twice_on_the_way_it_ends_with_whole_samples() {
    let home = tempdir();
    let output = home.path().join("out");
    let mut directories = Vec::new();
    let workplaces = output.join(".rollout/agents");
    for _ in 0..2 {
        let mut run = Run::start(AGENT, &output);
        run.wait_for_talk("sessions running").await;
        directories.extend(run::run_directories(&output));
        assert!(workplaces.exists());
        run.kill(Signal::SIGKILL).await;
    }
    let ended = Run::start(AGENT, &output).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    run::verify(&output).await;
    directories.extend(run::run_directories(&output));
    assert!(directories.len() >= 3, "{directories:?}");
    for directory in directories {
        assert!(!directory.exists(), "{} is left", directory.display());
    }
    assert!(!workplaces.exists());
}

#[tokio::test]
async fn interrupted_it_winds_down_and_goes_on_later() {
    let home = tempdir();
    let output = home.path().join("out");
    let manifest = run::slow_agent(home.path());
    let mut run = Run::start(&manifest, &output);
    run.wait_for_talk("sessions running").await;
    run.signal(Signal::SIGINT);
    let ended = run.end().await;
    assert_eq!(ended.code, Some(130), "{}", ended.talk);
    assert!(ended.talk.contains("goes on from here"), "{}", ended.talk);
    let hooks = || run::logs(&output).matches("abort hook of 0").count();
    let before = hooks();
    let ended = Run::start(&manifest, &output).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    run::verify(&output).await;
    let word = run::last_word(&output);
    assert_eq!(word["teardown"]["stragglers"], 0, "{word}");
    assert!(
        hooks() > before,
        "the second teardown has sessions of its own, whose agents are told: {word}"
    );
}

#[tokio::test]
async fn any_process_may_be_killed() {
    for victim in [
        "router",
        "driver",
        "simulate-engine",
        "agent launch",
        "agent exec",
        "python",
    ] {
        let home = tempdir();
        let output = home.path().join("out");
        let mut run = Run::start(AGENT, &output);
        run.wait_for_talk("sessions running").await;
        run.kill_child(victim).await;
        let ended = run.end().await;
        assert_eq!(
            ended.code,
            Some(0),
            "{victim} was killed:\n{}\n{}",
            ended.talk,
            run::logs(&output)
        );
        run::verify(&output).await;
    }
}

#[tokio::test]
async fn a_directory_belongs_to_one_job() {
    let home = tempdir();
    let output = home.path().join("out");
    assert_eq!(Run::start(MATH, &output).end().await.code, Some(0));
    let ended = Run::start(AGENT, &output).end().await;
    assert_eq!(ended.code, Some(1));
    assert!(
        ended
            .talk
            .contains("is the output of job default/math, not of default/two-turns"),
        "{}",
        ended.talk
    );
}

#[tokio::test]
async fn a_finished_job_stays_finished() {
    let home = tempdir();
    let output = home.path().join("out");
    assert_eq!(Run::start(MATH, &output).end().await.code, Some(0));
    let before = std::fs::read(output.join("samples-0.jsonl")).unwrap();
    assert_eq!(Run::start(MATH, &output).end().await.code, Some(0));
    assert_eq!(
        std::fs::read(output.join("samples-0.jsonl")).unwrap(),
        before
    );
}

#[tokio::test]
async fn nothing_outlives_a_killed_run() {
    let home = tempdir();
    let output = home.path().join("out");
    let mut run = Run::start(AGENT, &output);
    run.wait_for_talk("sessions running").await;
    let agents_run = || run.descendants().len() > 6;
    run::until(Duration::from_mins(1), "agents run", agents_run).await;
    let children = run.descendants();
    run.kill(Signal::SIGKILL).await;
    run::until(Duration::from_mins(1), "all children are gone", || {
        children
            .iter()
            .all(|pid| !Path::new(&format!("/proc/{pid}")).exists() || run::is_zombie(*pid))
    })
    .await;
}

#[tokio::test]
async fn the_sessions_of_a_killed_pod_end_because_somebody_saw_it_and_not_by_their_heartbeats() {
    let home = tempdir();
    let output = home.path().join("out");
    let mut run = Run::start_with(AGENT, &output, &["--pods", "1"]);
    run.wait_for_talk(" tokens").await;
    run.kill_child("agent launch").await;
    let ended = run.end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    let failures = run::last_word(&output)["recentFailures"].to_string();
    assert!(
        failures.contains("the pod's launcher ended with signal: 9"),
        "{failures}\n{}",
        ended.talk
    );
    run::verify(&output).await;
}

#[tokio::test]
async fn a_job_that_takes_too_long_ends_with_what_it_has() {
    let home = tempdir();
    let manifest = home.path().join("job.yaml");
    let text = std::fs::read_to_string(AGENT).unwrap();
    // So slow that no group is done in time.
    let text = text.replace("decodeTokensPerSecond: 100", "decodeTokensPerSecond: 1");
    let text = text.replace("  reward:\n", "  activeDeadlineSeconds: 3\n  reward:\n");
    std::fs::write(&manifest, text).unwrap();
    let output = home.path().join("out");
    let ended = Run::start(manifest.to_str().unwrap(), &output).end().await;
    assert_eq!(ended.code, Some(1), "{}", ended.talk);
    assert!(ended.talk.contains("DeadlineExceeded"), "{}", ended.talk);
    let manifest = std::fs::read_to_string(output.join("manifest.json")).unwrap();
    assert!(manifest.contains("DeadlineExceeded"), "{manifest}");
}
