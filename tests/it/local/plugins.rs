//! Rewards in Python: what they start and detach ends with the run, and their host may be killed.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;

use super::run::{self, AGENT, Run, tempdir};

/// Words of the command line of the interpreter.
const HOST: &str = "--plugins ";

/// Scores, and leaves a process each time that has left its group, session and environment.
const REWARDS: &str = r#"
  rewards.py: |
    import pathlib
    import shutil
    import subprocess

    def score(args, sample):
        quiet = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
        left = subprocess.Popen([shutil.which("sleep"), "1000"], start_new_session=True, env={}, **quiet)
        with open(pathlib.Path(__file__).parent / "left", "a") as file:
            file.write(f"{left.pid}\n")
        return len(sample.response) % 2
"#;

fn manifest(home: &Path) -> PathBuf {
    manifest_with(home, REWARDS)
}

fn manifest_with(home: &Path, rewards: &str) -> PathBuf {
    let text = std::fs::read_to_string(AGENT).unwrap();
    let text = text.replace(
        "  reward:\n    type: Math\n",
        "  reward: {type: Plugin, plugin: {path: rewards.score}}\n  plugins: {image: example.dev/rewards:1, code: {configMap: {name: files}}}\n",
    );
    let path = home.join("job.yaml");
    std::fs::write(&path, text.trim_end().to_owned() + rewards).unwrap();
    path
}

/// The processes that the rewards left so far.
fn left(output: &Path) -> Vec<i32> {
    let file = output.join(".rollout/code/plugins/left");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    // The last line may not be whole.
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    lines.map(|line| line.trim().parse().unwrap()).collect()
}

#[tokio::test]
async fn nothing_that_a_reward_started_outlives_the_job() {
    let home = tempdir();
    let output = home.path().join("out");
    let manifest = manifest(home.path());
    let ended = Run::start(manifest.to_str().unwrap(), &output).end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    let left = left(&output);
    assert!(left.len() >= 16, "{left:?}");
    assert!(left.iter().all(|pid| run::is_zombie(*pid)), "{left:?}");
}

#[tokio::test]
async fn nothing_that_a_reward_started_outlives_a_run_that_is_killed() {
    let home = tempdir();
    let output = home.path().join("out");
    let manifest = manifest(home.path());
    let run = Run::start(manifest.to_str().unwrap(), &output);
    run::until(Duration::from_mins(2), "a reward", || {
        !left(&output).is_empty()
    })
    .await;
    run.kill(Signal::SIGKILL).await;
    run::until(
        Duration::from_mins(1),
        "what the rewards left is gone",
        || left(&output).iter().all(|pid| run::is_zombie(*pid)),
    )
    .await;
}

/// Scores in a while, and tells of each call.
const SLOW_REWARDS: &str = r#"
  rewards.py: |
    import asyncio
    import pathlib

    async def score(args, sample):
        with open(pathlib.Path(__file__).parent / "calls", "a") as file:
            file.write("called\n")
        await asyncio.sleep(0.2)
        return sample.index % 2
"#;

#[tokio::test]
async fn the_host_may_be_killed_at_any_moment() {
    let home = tempdir();
    let output = home.path().join("out");
    let manifest = manifest_with(home.path(), SLOW_REWARDS);
    let calls = || {
        let file = output.join(".rollout/code/plugins/calls");
        std::fs::read_to_string(file)
            .unwrap_or_default()
            .lines()
            .count()
    };
    let mut run = Run::start(manifest.to_str().unwrap(), &output);
    let mut moments = Vec::new();
    let mut moment = 0;
    // The interpreter, who watches it, and the guard of both. Each sample that is kept takes a call, and there are 16 of them.
    for victim in [HOST, "plugins --guarded", "plugins --exit-with-stdin"] {
        moment += rand::random_range(1..=4);
        moments.push(moment);
        run::until(Duration::from_mins(1), "rewards are asked for", || {
            calls() >= moment
        })
        .await;
        run.kill_child(victim).await;
    }
    let ended = run.end().await;
    assert_eq!(
        ended.code,
        Some(0),
        "killed after {moments:?} calls:\n{}\n{}",
        ended.talk,
        run::logs(&output)
    );
    run::verify(&output).await;
    let rows = run::rows(&output);
    assert_eq!(rows.len(), 16);
    assert!(
        rows.iter()
            .all(|row| row["reward"].as_i64() == row["index"].as_i64().map(|index| index % 2)),
        "{rows:?}"
    );
}
