//! Child processes that are kept running: what the kubelet does for the containers of a pod.
//!
//! A child gets a pipe as standard input and ends when that pipe closes, so that nothing outlives a `kill -9` of this process. Its
//! first line on standard output is one JSON object that says where it listens; everything else it prints goes to its log file. It
//! runs in a process group of its own: a Ctrl-C at the terminal reaches only us, and we end the children in order.

use std::{
    fs, io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{environment::Environment, log::Log};

/// How long a child may take until it says where it listens.
const READY_DEADLINE: Duration = Duration::from_secs(30);

/// A child that ran this long counts as healthy: its restarts are forgiven.
const HEALTHY_AFTER: Duration = Duration::from_mins(1);

/// How long a child may take to end once it has closed its standard output.
const END_DEADLINE: Duration = Duration::from_secs(5);

/// A failure to run a child.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceError {
    #[error("start {name}")]
    Start { name: String, source: io::Error },
    #[error("start {name}: make {} to work in", directory.display())]
    Workplace {
        name: String,
        directory: PathBuf,
        source: io::Error,
    },
    /// It ended by itself before it listened, and has said why.
    #[error("{name}: {said}")]
    Refuses { name: String, said: String },
    /// It was ended before it listened, or crashed.
    #[error("{name}: {said}")]
    Dies {
        name: String,
        status: String,
        said: String,
    },
    #[error("{name}: {said}")]
    NotReady { name: String, said: String },
    #[error("{name}: {said}")]
    KeepsFailing { name: String, said: String },
}

impl ServiceError {
    /// Whether another start may help: `kill -9` is a normal event.
    pub(super) fn is_crash(&self) -> bool {
        matches!(self, Self::Dies { .. })
    }
}

/// What to start.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    /// Name in messages and of the log file.
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    /// Written to standard input first, with a line break.
    pub(super) first_line: Option<String>,
    /// Its whole environment; none: ours.
    pub(super) environment: Option<Environment>,
    /// Where it runs; none: where we do.
    pub(super) directory: Option<PathBuf>,
    /// Where its output goes.
    pub(super) log: PathBuf,
    /// Whether its first line on standard output is a JSON object to wait for.
    pub(super) announces: bool,
}

/// A running child.
pub(super) struct Process {
    name: String,
    child: Child,
    pid: Pid,
    _stdin: ChildStdin,
    /// What it announced, or null.
    pub(super) announcement: Value,
}

impl Process {
    /// Starts a child and waits for its announcement.
    pub(super) async fn start(spec: &Spec) -> Result<Self, ServiceError> {
        let start_error = |source| ServiceError::Start {
            name: spec.name.clone(),
            source,
        };
        let log = Log::of(&spec.log);
        let file = log.open().map_err(start_error)?;
        let output = if spec.announces {
            Stdio::piped()
        } else {
            Stdio::from(file.try_clone().map_err(start_error)?)
        };
        let mut command = Command::new(&spec.program);
        if let Some(environment) = &spec.environment {
            command.env_clear().envs(environment.of_child());
        }
        if let Some(directory) = &spec.directory {
            // The user's code, which worked there before, may have removed it.
            fs::create_dir_all(directory).map_err(|source| ServiceError::Workplace {
                name: spec.name.clone(),
                directory: directory.clone(),
                source,
            })?;
            command.current_dir(directory);
        }
        let mut child = command
            .args(&spec.args)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(Stdio::from(file))
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(start_error)?;
        let (Some(mut stdin), Some(id)) = (child.stdin.take(), child.id()) else {
            let ended = io::Error::other("it ended before it could be spoken to");
            return Err(start_error(ended));
        };
        if let Some(line) = &spec.first_line {
            let line = format!("{line}\n");
            stdin
                .write_all(line.as_bytes())
                .await
                .map_err(start_error)?;
        }
        let announcement = match child.stdout.take() {
            None => Value::Null,
            Some(output) => match announcement(output).await {
                Ok(announcement) => announcement,
                Err(silence) => return Err(silence.explain(&spec.name, &mut child, &log).await),
            },
        };
        let pid =
            Pid::from_raw(i32::try_from(id).map_err(|error| start_error(io::Error::other(error)))?);
        Ok(Self {
            name: spec.name.clone(),
            child,
            pid,
            _stdin: stdin,
            announcement,
        })
    }

    /// Waits for its end.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends SIGTERM.
    pub(super) fn terminate(&self) {
        if self.child.id().is_some() {
            let _gone = kill(self.pid, Signal::SIGTERM);
        }
    }

    /// SIGTERM, then after `grace` SIGKILL to the whole process group.
    pub(super) async fn stop(mut self, grace: Duration) {
        self.terminate();
        if timeout(grace, self.child.wait()).await.is_err() {
            tracing::warn!(name = self.name, "did not end in time and is killed");
            let _gone = killpg(self.pid, Signal::SIGKILL);
            drop(self.child.wait().await);
        }
    }
}

/// Why there is no line that says where a child listens.
enum Silence {
    /// Its standard output is closed.
    Ended,
    /// What is wrong.
    Problem(String),
}

impl Silence {
    async fn explain(self, name: &str, child: &mut Child, log: &Log) -> ServiceError {
        let name = name.to_owned();
        if let Self::Problem(problem) = self {
            let said = log.ended(&problem);
            return ServiceError::NotReady { name, said };
        }
        let status = match timeout(END_DEADLINE, child.wait()).await {
            // A driver that finds what no start could mend has decided its job, and that is no failure of its own.
            Ok(Ok(status)) if status.success() => None,
            Ok(Ok(status)) => Some(status.to_string()),
            _ => Some("a closed standard output".to_owned()),
        };
        let with = status
            .as_ref()
            .map(|status| format!(" with {status}"))
            .unwrap_or_default();
        let said = log.ended(&format!("ended{with} before it said where it listens"));
        let status = status.unwrap_or_else(|| "success".to_owned());
        match log.reason() {
            Some(_) => ServiceError::Refuses { name, said },
            None => ServiceError::Dies { name, status, said },
        }
    }
}

/// Reads the line that says where a child listens.
async fn announcement(output: ChildStdout) -> Result<Value, Silence> {
    let mut lines = BufReader::new(output).lines();
    let line = match timeout(READY_DEADLINE, lines.next_line()).await {
        Ok(Ok(Some(line))) => line,
        Ok(Ok(None)) => return Err(Silence::Ended),
        Ok(Err(error)) => return Err(Silence::Problem(format!("cannot be heard: {error}"))),
        Err(_) => {
            return Err(Silence::Problem(format!(
                "did not say within {} s where it listens",
                READY_DEADLINE.as_secs()
            )));
        }
    };
    serde_json::from_str(&line)
        .map_err(|_| Silence::Problem(format!("said '{line}' in place of where it listens")))
}

/// Keeps a child running until `cancel`, then stops it within `grace`.
///
/// `spec` builds the command from what the child announced before (null at first), so that a restarted child can take its old port.
/// What it announces last is in `announced`. Restarts wait 0.1 s, doubling to 5 s; after `limit` restarts in a row it is an error.
pub(super) async fn keep_running(
    spec: impl Fn(&Value) -> Spec,
    limit: u32,
    grace: Duration,
    announced: watch::Sender<Value>,
    cancel: CancellationToken,
) -> Result<(), ServiceError> {
    let mut restarts = 0;
    let mut last = Value::Null;
    loop {
        let current = spec(&last);
        let log = Log::of(&current.log);
        let started = Instant::now();
        let status = match Process::start(&current).await {
            Ok(mut process) => {
                last = process.announcement.clone();
                announced.send_replace(last.clone());
                tokio::select! {
                    () = cancel.cancelled() => {
                        process.stop(grace).await;
                        return Ok(());
                    }
                    status = process.wait() => status.map_or_else(|error| error.to_string(), |status| status.to_string()),
                }
            }
            Err(error) if restarts >= limit || (restarts == 0 && !error.is_crash()) => {
                return Err(error);
            }
            Err(error) => error.to_string(),
        };
        if started.elapsed() > HEALTHY_AFTER {
            restarts = 0;
        }
        if restarts >= limit {
            let times = format!(
                "ended {} times in a row, at last with {status}",
                restarts + 1
            );
            return Err(ServiceError::KeepsFailing {
                name: current.name,
                said: log.ended(&times),
            });
        }
        tracing::warn!(name = current.name, status, "ended and is started again");
        let pause = Duration::from_millis(100 << restarts.min(6)).min(Duration::from_secs(5));
        restarts += 1;
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            () = sleep(pause) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a child that announces itself by this script.
    async fn started(script: &str) -> (tempfile::TempDir, Result<Process, ServiceError>) {
        let home = tempfile::tempdir().unwrap();
        let spec = Spec {
            name: "router".to_owned(),
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), script.to_owned()],
            first_line: None,
            environment: None,
            directory: None,
            log: home.path().join("router.log"),
            announces: true,
        };
        let started = Process::start(&spec).await;
        (home, started)
    }

    async fn refused(script: &str) -> (bool, String) {
        let (home, started) = started(script).await;
        let error = started.err().unwrap();
        let directory = format!("{}/", home.path().display());
        (error.is_crash(), error.to_string().replace(&directory, ""))
    }

    #[tokio::test]
    async fn a_child_that_says_why_it_ends_is_not_started_again() {
        let (again, text) =
            refused("echo begins >&2; echo 'error: the port is taken' >&2; exit 1").await;
        assert!(!again);
        assert_eq!(
            text,
            "router: the port is taken (it ended with exit status: 1 before it said where it listens; its log: router.log)"
        );
    }

    #[tokio::test]
    async fn a_child_that_is_killed_may_be_started_again() {
        let (again, text) = refused("echo begins >&2; kill -9 $$").await;
        assert!(again);
        assert_eq!(
            text,
            "router: it ended with signal: 9 (SIGKILL) before it said where it listens; its log (router.log) ends with:\nbegins"
        );
    }

    #[tokio::test]
    async fn a_child_that_says_something_else_is_none_of_ours() {
        let (again, text) = refused("echo hello; exec sleep 100").await;
        assert!(!again);
        assert_eq!(
            text,
            "router: it said 'hello' in place of where it listens without a word in its log (router.log)"
        );
    }

    #[tokio::test]
    async fn a_child_works_in_its_directory_though_nobody_made_it() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().canonicalize().unwrap().join("plugins");
        let spec = |directory: PathBuf| Spec {
            name: "plug-in host".to_owned(),
            program: "/bin/sh".into(),
            args: ["-c", "echo \"\\\"$(pwd)\\\"\"; exec sleep 100"]
                .map(str::to_owned)
                .to_vec(),
            first_line: None,
            environment: None,
            directory: Some(directory),
            log: home.path().join("plugins.log"),
            announces: true,
        };
        for _ in 0..2 {
            let process = Process::start(&spec(directory.clone())).await.unwrap();
            assert_eq!(process.announcement, directory.to_str().unwrap());
            process.stop(Duration::from_secs(30)).await;
            std::fs::remove_dir(&directory).unwrap();
        }
        std::fs::write(&directory, "").unwrap();
        let error = Process::start(&spec(directory.join("deep")))
            .await
            .err()
            .unwrap();
        let expected = format!(
            "start plug-in host: make {}/deep to work in",
            directory.display()
        );
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test]
    async fn what_a_child_announces_is_taken() {
        let (_home, started) = started("echo '{\"url\": \"http://here\"}'; exec sleep 100").await;
        let process = started.unwrap();
        assert_eq!(process.announcement["url"], "http://here");
        process.stop(Duration::from_secs(30)).await;
    }
}
