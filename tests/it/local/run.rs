//! A run of the command, watched from outside.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    task::JoinHandle,
    time::timeout,
};

/// Manifest of a two-turn agent on the standard library.
pub(super) const AGENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/local/agent.yaml"
);

/// The same with engines that take seconds, so that the target is reached while surplus sessions run, however busy the machine is.
pub(super) fn slow_agent(home: &Path) -> String {
    let manifest = fs::read_to_string(AGENT).unwrap();
    let (fast, slow) = ("decodeTokensPerSecond: 100", "decodeTokensPerSecond: 15");
    assert!(manifest.contains(fast));
    let path = home.join("slow-agent.yaml");
    fs::write(&path, manifest.replace(fast, slow)).unwrap();
    path.to_str().unwrap().to_owned()
}

const OPERATOR: &str = env!("CARGO_BIN_EXE_rollout-operator");

/// Bound on one run; generous, since machines are shared.
const LIMIT: Duration = Duration::from_mins(4);

pub(super) struct Run {
    child: Child,
    pid: i32,
    talk: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) talk: String,
}

impl Run {
    pub(super) fn start(manifest: &str, output: &Path) -> Self {
        Self::start_with(manifest, output, &[])
    }

    pub(super) fn start_with(manifest: &str, output: &Path, more: &[&str]) -> Self {
        Self::spawn(Command::new(OPERATOR), manifest, output, more)
    }

    pub(super) fn start_in(
        directory: &Path,
        variables: &[(&str, &str)],
        manifest: &str,
        output: &Path,
    ) -> Self {
        let mut command = Command::new(OPERATOR);
        command
            .current_dir(directory)
            .envs(variables.iter().copied());
        Self::spawn(command, manifest, output, &[])
    }

    /// A limit on the size of files stands for a full disk.
    pub(super) fn start_on_a_full_disk(kibibytes: u32, manifest: &str, output: &Path) -> Self {
        let script = format!("trap '' XFSZ; ulimit -f {kibibytes}; exec \"$0\" \"$@\"");
        let mut bash = Command::new("bash");
        bash.args(["-c", &script, OPERATOR]);
        Self::spawn(bash, manifest, output, &[])
    }

    fn spawn(mut command: Command, manifest: &str, output: &Path, more: &[&str]) -> Self {
        let mut child = command
            .args(["local", manifest, "--output"])
            .arg(output)
            .args(more)
            // What a killed run leaves goes with the test.
            .env("TMPDIR", output.parent().expect("a home"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the command starts");
        let pid = i32::try_from(child.id().expect("it runs")).expect("a pid");
        let stderr = child.stderr.take().expect("standard error");
        let talk = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&talk);
        #[expect(
            clippy::disallowed_methods,
            reason = "ends with the child's standard error"
        )]
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                heard.lock().push_str(&(line + "\n"));
            }
        });
        Self {
            child,
            pid,
            talk,
            reader,
        }
    }

    pub(super) async fn wait_until(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        let talk = Arc::clone(&self.talk);
        until(LIMIT, what, || holds(&talk.lock())).await;
    }

    pub(super) async fn wait_for_talk(&mut self, text: &str) {
        self.wait_until(text, |talk| talk.contains(text)).await;
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).expect("the signal is sent");
    }

    pub(super) async fn kill(mut self, signal: Signal) {
        self.signal(signal);
        timeout(LIMIT, self.child.wait())
            .await
            .expect("it ends")
            .expect("it is waited for");
    }

    pub(super) async fn end(mut self) -> Ended {
        let status = timeout(LIMIT, self.child.wait()).await;
        let talk = || self.talk.lock().clone();
        let status = status
            .unwrap_or_else(|_| panic!("it did not end within {LIMIT:?}:\n{}", talk()))
            .expect("waited");
        drop(timeout(Duration::from_secs(5), &mut self.reader).await);
        Ended {
            code: status.code(),
            talk: self.talk.lock().clone(),
        }
    }

    pub(super) fn descendants(&self) -> Vec<i32> {
        let mut found = vec![self.pid];
        let parents = processes();
        let mut next = 0;
        while next < found.len() {
            let parent = found[next];
            found.extend(
                parents
                    .iter()
                    .filter(|(_, of)| *of == parent)
                    .map(|(pid, _)| *pid),
            );
            next += 1;
        }
        found.split_off(1)
    }

    /// SIGKILL to the first descendant whose command line has `text`.
    pub(super) async fn kill_child(&mut self, text: &str) {
        let find = || {
            self.descendants()
                .into_iter()
                .find(|pid| command_line(*pid).contains(text))
        };
        until(Duration::from_mins(1), text, || find().is_some()).await;
        if let Some(pid) = find() {
            kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is killed");
        }
    }
}

fn processes() -> Vec<(i32, i32)> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, stat(pid)?.1))).collect()
}

/// State and parent of a process.
fn stat(pid: i32) -> Option<(String, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

pub(super) fn is_zombie(pid: i32) -> bool {
    stat(pid).is_none_or(|(state, _)| state == "Z")
}

fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Polls a condition until it holds, within a deadline.
pub(super) async fn until(limit: Duration, what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(super) async fn verify(output: &Path) {
    let output = Command::new(OPERATOR)
        .args(["samples", "verify"])
        .arg(output)
        .output()
        .await
        .expect("verify runs");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What is wrong with an output, whether or not it has samples.
pub(super) async fn problems(output: &Path) -> Value {
    let report = Command::new(OPERATOR)
        .args(["samples", "verify", "--format", "json"])
        .arg(output)
        .output()
        .await
        .expect("verify runs");
    let report: Value = serde_json::from_slice(&report.stdout).expect("a report");
    report["problems"].clone()
}

pub(super) fn rows(output: &Path) -> Vec<Value> {
    let text = fs::read_to_string(output.join("samples-0.jsonl")).expect("the samples are there");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a row is JSON"))
        .collect()
}

/// What became of the takes of the first step.
pub(super) fn ledger(output: &Path) -> Value {
    let text = fs::read_to_string(output.join("manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&text).expect("it is JSON");
    manifest["steps"][0]["ledger"].clone()
}

/// The short-lived directories that are on record.
pub(super) fn run_directories(output: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(output.join(".rollout/job.json")).expect("a record of the run");
    let record: Value = serde_json::from_str(&text).expect("it is JSON");
    serde_json::from_value(record["run_directories"].clone()).expect("a list of paths")
}

pub(super) fn last_word(output: &Path) -> Value {
    let text =
        fs::read_to_string(output.join(".rollout/last-word.json")).expect("there is a last word");
    serde_json::from_str(&text).expect("it is JSON")
}

pub(super) fn logs(output: &Path) -> String {
    let entries = fs::read_dir(output.join(".rollout/logs"))
        .into_iter()
        .flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    let logs: Vec<String> = paths
        .map(|path| fs::read_to_string(path).unwrap_or_default())
        .collect();
    logs.join("\n")
}

pub(super) fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}
