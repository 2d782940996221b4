//! Child processes that are measured: started, asked what they cost, ended.

use std::io::{BufRead, BufReader};
use std::ops::Sub;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// The operator's binary: the one built with the bench, or another one to compare with.
fn operator_binary() -> PathBuf {
    std::env::var_os("BENCH_OPERATOR").map_or_else(
        || env!("CARGO_BIN_EXE_rollout-operator").into(),
        PathBuf::from,
    )
}

/// A part of the operator. It logs errors alone.
pub(crate) fn operator(arguments: &[&str]) -> Command {
    command(&operator_binary(), arguments)
}

/// A program with its arguments.
pub(crate) fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("ROLLOUT_LOG", "error")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// A child process. Killed when it is dropped; those started with `--exit-with-stdin` also end when this process dies.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// What it said about itself in its first line, a JSON object.
    pub(crate) announced: Value,
}

impl Process {
    /// Starts what announces where it listens, and waits for that line.
    pub(crate) fn announcing(command: Command) -> Self {
        let program = format!("{command:?}");
        let mut process = Self::silent(command);
        let stdout = process.child.stdout.take().unwrap();
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        process.announced = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{program} said {line:?}: {error}"));
        process
    }

    /// Starts what says nothing.
    pub(crate) fn silent(mut command: Command) -> Self {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self {
            child,
            announced: Value::Null,
        }
    }

    /// A field of the announcement.
    pub(crate) fn url(&self, field: &str) -> String {
        self.announced[field].as_str().unwrap().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time so far, also of a process that has just ended.
    pub(crate) fn cpu(&self) -> Cpu {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        // Ticks of 10 ms, which Linux fixes for user space.
        let ticks =
            |index: usize| Duration::from_millis(10 * fields[index].parse::<u64>().unwrap());
        Cpu {
            user: ticks(11),
            kernel: ticks(12),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    pub(crate) user: Duration,
    pub(crate) kernel: Duration,
}

impl Cpu {
    pub(crate) fn total(self) -> Duration {
        self.user + self.kernel
    }
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            kernel: self.kernel.saturating_sub(before.kernel),
        }
    }
}
