//! Engines of somebody else that go away and come back, or are full.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::run::{self, Run, tempdir};

const ENGINE: &str = env!("CARGO_BIN_EXE_rollout-operator");

/// A process starts, and a killed one has let its port go, within this time.
const SOON: Duration = Duration::from_mins(1);

/// 40 groups of 4 samples.
fn manifest(home: &Path, simulator: &str) -> String {
    let text = format!(
        r#"apiVersion: rollout-operator.dev/v1alpha1
kind: RolloutJob
metadata: {{name: sums}}
spec:
  pool: {{engine: {{simulator: {simulator}}}}}
  dataset:
    labelKey: label
    inline:
      - {{prompt: "What is 2 + 3? Answer in \\boxed{{}}.", label: "5"}}
      - {{prompt: "What is 4 * 6? Answer in \\boxed{{}}.", label: "24"}}
  rollout: {{batchSize: 40, samplesPerPrompt: 4}}
  sampling: {{maxNewTokens: 64}}
  generate: {{singleTurn: {{}}}}
  reward: {{type: Math}}
  output: {{persistentVolumeClaim: {{claimName: samples}}}}
"#
    );
    let path = home.join("job.yaml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// An engine at this port; 0 takes any. Answers where it is once it listens.
async fn engine(port: &str) -> (Child, String) {
    let deadline = Instant::now() + SOON;
    loop {
        let mut child = Command::new(ENGINE)
            .args([
                "simulate-engine",
                "--decode-tokens-per-second",
                "20",
                "--port",
                port,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the engine starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let line = timeout(SOON, lines.next_line()).await.expect("in time");
        if let Some(line) = line.expect("it is read") {
            let said: Value = serde_json::from_str(&line).expect("it is JSON");
            return (child, said["url"].as_str().expect("a URL").to_owned());
        }
        child.wait().await.expect("it is waited for");
        assert!(Instant::now() < deadline, "the port {port} stays taken");
    }
}

/// The largest N of "N times unavailable".
fn unavailable(talk: &str) -> u64 {
    let before = talk.split(" times unavailable");
    let counts = before.filter_map(|text| text.rsplit(' ').next()?.parse().ok());
    counts.max().unwrap_or(0)
}

#[tokio::test]
async fn the_only_engine_goes_away_for_seconds_and_no_group_is_lost() {
    let home = tempdir();
    let output = home.path().join("out");
    let (mut first, url) = engine("0").await;
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap();
    let manifest = manifest(home.path(), "{}");
    let mut job = Run::start_with(&manifest, &output, &["--engine", &url]);
    job.wait_for_talk("sessions running").await;
    first.kill().await.expect("it is killed");
    // Four rounds of what was under way: seven seconds of pauses.
    job.wait_until("many were turned away", |talk| unavailable(talk) > 480)
        .await;
    let (_second, _) = engine(port).await;
    let ended = job.end().await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    run::verify(&output).await;
    assert_eq!(run::rows(&output).len(), 160);
    let ledger = run::ledger(&output);
    assert_eq!(
        (&ledger["taken"], &ledger["kept"]),
        (&40.into(), &40.into()),
        "{ledger}"
    );
}

#[tokio::test]
async fn a_full_queue_costs_no_group() {
    let home = tempdir();
    let output = home.path().join("out");
    let small = "{timeScale: 10, maxRunningRequests: 8, maxQueuedRequests: 8}";
    let ended = Run::start(&manifest(home.path(), small), &output)
        .end()
        .await;
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    run::verify(&output).await;
    let ledger = run::ledger(&output);
    assert_eq!(
        (&ledger["taken"], &ledger["kept"]),
        (&40.into(), &40.into()),
        "{ledger}"
    );
}
