//! An agent pod: a launcher and a shim that share a directory.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    process::{Process, Role, start},
    router::{CLAIM_TOKEN, FakeRouter, PATIENCE},
};

/// A running pod.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) launcher: Process,
    pub(crate) shim: Process,
    pub(crate) directory: TempDir,
}

/// How a pod is started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) concurrent: usize,
    pub(crate) sessions_per_pod: usize,
}

pub(crate) const ONE: Shape = Shape {
    concurrent: 1,
    sessions_per_pod: 1,
};
pub(crate) const REUSED: Shape = Shape {
    concurrent: 1,
    sessions_per_pod: 0,
};

impl Pod {
    /// A pod that runs a function of `tests/it/agents/`.
    pub(crate) fn function(router: &FakeRouter, shape: Shape, path: &str) -> Self {
        Self::function_in(router, shape, path, &agents())
    }

    /// A pod that runs a function of another directory.
    pub(crate) fn function_in(router: &FakeRouter, shape: Shape, path: &str, code: &Path) -> Self {
        Self::start(Ticket::of(router, shape), |directory| {
            function(directory, path, code)
        })
    }

    /// A pod with a claim token of any router.
    pub(crate) fn function_of(router: &str, claim_token: &str, shape: Shape, path: &str) -> Self {
        let ticket = Ticket {
            router: router.to_owned(),
            claim_token: claim_token.to_owned(),
            shape,
        };
        Self::start(ticket, |directory| function(directory, path, &agents()))
    }

    /// A pod that runs a shell script per session.
    pub(crate) fn script(router: &FakeRouter, shape: Shape, script: &str) -> Self {
        Self::command(router, shape, &["/bin/sh", "-c", script])
    }

    /// A pod that runs a command per session.
    pub(crate) fn command(router: &FakeRouter, shape: Shape, command: &[&str]) -> Self {
        Self::start(Ticket::of(router, shape), |directory| Role::Command {
            directory: directory.to_owned(),
            command: command.iter().map(|part| (*part).to_owned()).collect(),
        })
    }

    fn start(ticket: Ticket, shim: impl FnOnce(&Path) -> Role) -> Self {
        let directory = TempDir::with_prefix("rollout-agent-test-").unwrap();
        let launcher = start(&ticket.launcher(directory.path()));
        let shim = start(&Role::Guarded(Box::new(shim(directory.path()))));
        Self {
            launcher,
            shim,
            directory,
        }
    }

    /// Starts the launcher again.
    pub(crate) fn restart_launcher(&mut self, router: &FakeRouter, shape: Shape) {
        self.launcher = start(&Ticket::of(router, shape).launcher(self.directory.path()));
    }

    /// The process id of the shim itself, below its guard.
    pub(crate) async fn shim_pid(&self) -> i32 {
        let guard = self.shim.child.id().unwrap();
        let mut found = None;
        eventually("the shim", || {
            found = children(guard).first().copied();
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// Waits for the end of both, however they end.
    pub(crate) async fn ended(&mut self) {
        let both = async {
            (
                self.launcher.child.wait().await.unwrap(),
                self.shim.child.wait().await.unwrap(),
            )
        };
        timeout(PATIENCE, both).await.expect("the pod ends");
    }

    /// Waits for the end of both, and says whether both ended well.
    pub(crate) async fn ended_well(&mut self) -> bool {
        let both = async {
            (
                self.launcher.child.wait().await.unwrap(),
                self.shim.child.wait().await.unwrap(),
            )
        };
        let (launcher, shim) = timeout(PATIENCE, both).await.expect("the pod ends");
        launcher.success() && shim.success()
    }
}

fn function(directory: &Path, path: &str, code: &Path) -> Role {
    let parameters = directory.join("parameters.json");
    std::fs::write(&parameters, r#"{"my_flag": 7}"#).unwrap();
    Role::Function {
        directory: directory.to_owned(),
        path: path.to_owned(),
        python: python(),
        code: code.to_owned(),
        parameters: Some(parameters),
    }
}

/// What a launcher needs to claim sessions.
struct Ticket {
    router: String,
    claim_token: String,
    shape: Shape,
}

impl Ticket {
    fn of(router: &FakeRouter, shape: Shape) -> Self {
        Self {
            router: router.url().to_owned(),
            claim_token: CLAIM_TOKEN.to_owned(),
            shape,
        }
    }

    fn launcher(self, directory: &Path) -> Role {
        Role::Launcher {
            router: self.router,
            claim_token: self.claim_token,
            directory: directory.to_owned(),
            concurrent: self.shape.concurrent,
            sessions_per_pod: self.shape.sessions_per_pod,
        }
    }
}

/// The agents of the tests.
pub(crate) fn agents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/agents")
}

/// The interpreter itself, not a script in front of it; `ROLLOUT_TEST_PYTHON` names another one.
pub(crate) fn python() -> PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON
        .get_or_init(|| {
            let python =
                std::env::var_os("ROLLOUT_TEST_PYTHON").unwrap_or_else(|| "python3".into());
            let output = std::process::Command::new(python)
                .args(["-c", "import sys; print(sys.executable)"])
                .output();
            PathBuf::from(String::from_utf8(output.unwrap().stdout).unwrap().trim())
        })
        .clone()
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "waited for {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The children of a process.
pub(crate) fn children(parent: u32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{parent}/task")) else {
        return Vec::new();
    };
    threads
        .flat_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")))
        .flat_map(|pids| {
            pids.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<i32>>()
        })
        .collect()
}

/// Whether a process lives (a zombie does not).
pub(crate) fn lives(pid: &str) -> bool {
    let Ok(pid) = pid.trim().parse::<u32>() else {
        return false;
    };
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}
