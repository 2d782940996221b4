//! Rewards by the user's Python functions, in the real plug-in host.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rollout_driver::plugins::PluginClient;
use rollout_driver::reward::{PluginReward, RewardError, RewardModel, Rewards};
use rollout_session::Sample;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

const REWARDS: &str = r#"
import asyncio, os, pathlib

async def score(args, sample):
    if sample.label == "nan":
        return float("nan")
    if sample.label == "list":
        return [1.0]
    if sample.label == "text":
        return "0.5"
    if sample.label == "none":
        return None
    if sample.label == "object":
        return {"score": 0.25, "note": "fine"}
    if sample.label == "raise":
        raise KeyError("no such answer")
    if sample.label == "hang":
        await asyncio.sleep(3600)
    return args.weight * len(sample.response)

def group(args, samples):
    return [sample.index - samples[0].index for sample in samples]

def once(args, sample):
    seen = pathlib.Path(__file__).with_name("seen")
    if not seen.exists():
        seen.write_text("")
        os._exit(1)
    return 1
"#;

struct Host {
    directory: tempfile::TempDir,
    child: Child,
}

impl Host {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("rewards.py"), REWARDS).expect("written");
        let child = spawn(directory.path());
        Self { directory, child }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("plugins.sock")
    }

    fn rewards(&self, path: &str, change: impl FnOnce(&mut PluginReward)) -> Rewards {
        let mut plugin = PluginReward {
            client: Arc::new(PluginClient::new(self.socket(), 8)),
            path: path.into(),
            args: json!({"weight": 2}),
            batch: false,
            deadline: Duration::from_secs(30),
        };
        change(&mut plugin);
        Rewards {
            model: RewardModel::Plugin(plugin),
            key: String::new(),
        }
    }
}

/// The host lives as long as its standard input is open.
fn spawn(directory: &Path) -> Child {
    let host = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../rollout-agent/python/host.py"
    );
    Command::new("python3")
        .args([host, "--plugins", "plugins.sock", "--code", "."])
        .current_dir(directory)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("python3")
}

fn sample(index: i64, label: &str) -> Sample {
    Sample {
        index: Some(index),
        label: json!(label),
        response: "abc".into(),
        ..Sample::default()
    }
}

fn text(result: &Result<Value, RewardError>) -> String {
    match result {
        Ok(reward) => reward.to_string(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn every_wrong_return_is_an_error_that_says_what_was_expected() {
    let host = Host::start();
    let labels = ["plain", "nan", "list", "text", "none", "raise", "object"];
    let samples: Vec<_> = (0..)
        .zip(labels)
        .map(|(index, label)| sample(index, label))
        .collect();
    let mut rewards = host.rewards("rewards.score", |_| {});
    rewards.prepare().await.expect("it can be imported");
    let scored = rewards.score(&samples).await;
    assert_eq!(scored[0].as_ref().expect("a reward"), &json!(6));
    for (label, result) in labels.iter().zip(&scored).skip(1) {
        let error = text(result);
        assert!(
            result.is_err() && error.contains("rewards.score"),
            "{label}: {error}"
        );
    }
    assert!(text(&scored[1]).contains("nan"), "{}", text(&scored[1]));
    assert!(
        text(&scored[5]).contains("KeyError: 'no such answer'"),
        "{}",
        text(&scored[5])
    );
    assert!(
        text(&scored[6]).contains("reward.key"),
        "{}",
        text(&scored[6])
    );
    rewards.key = "score".into();
    let scored = rewards.score(&samples[6..]).await;
    assert_eq!(text(&scored[0]), r#"{"score":0.25,"note":"fine"}"#);
}

#[tokio::test]
async fn a_group_is_scored_in_one_call() {
    let host = Host::start();
    let rewards = host.rewards("rewards.group", |plugin| plugin.batch = true);
    let scored = rewards
        .score(&[sample(5, ""), sample(6, ""), sample(7, "")])
        .await;
    assert_eq!(scored.iter().map(text).collect::<Vec<_>>(), ["0", "1", "2"]);
}

#[tokio::test]
async fn a_function_that_cannot_be_imported_is_known_at_the_start() {
    let host = Host::start();
    for path in ["absent.score", "rewards.absent"] {
        let error = host
            .rewards(path, |_| {})
            .prepare()
            .await
            .expect_err("no such function")
            .to_string();
        assert!(
            error.starts_with(&format!("{path}: ImportError: ")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_function_that_hangs_is_late_and_its_siblings_are_not() {
    let host = Host::start();
    host.rewards("rewards.score", |_| {})
        .prepare()
        .await
        .expect("the host is up");
    let rewards = host.rewards("rewards.score", |plugin| {
        plugin.deadline = Duration::from_secs(4);
    });
    let scored = rewards
        .score(&[sample(0, "hang"), sample(1, "plain")])
        .await;
    assert_eq!(
        text(&scored[0]),
        "rewards.score: no answer from the plug-in host within 4 s"
    );
    assert_eq!(text(&scored[1]), "6");
}

#[tokio::test]
async fn a_host_that_dies_in_a_call_is_called_again_when_it_is_back() {
    let mut host = Host::start();
    let rewards = host.rewards("rewards.once", |_| {});
    let samples = [sample(0, "")];
    // Waiting for a child closes its input, which would end the host.
    let _input = host.child.stdin.take();
    let restarted = async {
        host.child.wait().await.expect("it ended");
        let child = spawn(host.directory.path());
        (rewards.score(&[sample(1, "")]).await, child)
    };
    let (scored, (later, _child)) = tokio::join!(rewards.score(&samples), restarted);
    assert_eq!(
        (text(&scored[0]), text(&later[0])),
        ("1".to_owned(), "1".to_owned())
    );
}
