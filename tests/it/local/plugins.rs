//! Rewards in Python: what they start and detach ends with the run.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;

use super::run::{self, AGENT, Run, tempdir};

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
    let text = std::fs::read_to_string(AGENT).unwrap();
    let text = text.replace(
        "  reward:\n    type: Math\n",
        "  reward: {type: Plugin, plugin: {path: rewards.score}}\n  plugins: {image: example.dev/rewards:1, code: {configMap: {name: files}}}\n",
    );
    let path = home.join("job.yaml");
    std::fs::write(&path, text.trim_end().to_owned() + REWARDS).unwrap();
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
