//! The launcher and the shim as processes: this test binary, started again with a configuration in its environment.
//!
//! They end when their standard input is closed, so that nothing outlives the test.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rollout_agent::{
    launcher::{self, LauncherConfig, LauncherEnd},
    plugins::{self, PluginsConfig},
    shim::{self, Agent, Function, ShimConfig},
};
use serde::{Deserialize, Serialize};
use tokio::process::{Child, ChildStdin, Command};
use tokio_util::sync::CancellationToken;

const VARIABLE: &str = "ROLLOUT_TEST_PROCESS";

/// What a process is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Role {
    Launcher {
        router: String,
        claim_token: String,
        directory: PathBuf,
        concurrent: usize,
        sessions_per_pod: usize,
    },
    /// A shim or the supervisor of the plug-in host below a guard, as they run in a pod.
    Guarded(Box<Role>),
    Plugins {
        socket: PathBuf,
        python: PathBuf,
        code: PathBuf,
        unresponsive_after: Duration,
    },
    Command {
        directory: PathBuf,
        command: Vec<String>,
    },
    Function {
        directory: PathBuf,
        path: String,
        python: PathBuf,
        code: PathBuf,
        parameters: Option<PathBuf>,
    },
}

/// A process that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    // Kept apart: waiting for a child closes the input that it holds.
    input: Option<ChildStdin>,
}

impl Process {
    /// Closes its standard input, as the end of whoever started it does.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }
}

/// Starts a process.
pub(crate) fn start(role: &Role) -> Process {
    start_command(&mut again(role))
}

/// Starts a process whose standard error is `child.stderr`.
pub(crate) fn start_heard(role: &Role) -> Process {
    start_command(again(role).stderr(Stdio::piped()))
}

/// Starts a process that works in a directory.
pub(crate) fn start_at(directory: &Path, role: &Role) -> Process {
    start_command(again(role).current_dir(directory))
}

fn start_command(command: &mut Command) -> Process {
    let mut child = command
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let input = child.stdin.take();
    Process { child, input }
}

fn again(role: &Role) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "process::started",
            "--ignored",
            "--nocapture",
            "--quiet",
        ])
        .env(VARIABLE, serde_json::to_string(role).unwrap())
        .env("ROLLOUT_SECRET_OF_THE_LAUNCHER", "must not reach an agent")
        .stdout(Stdio::null());
    command
}

#[test]
#[ignore = "what `start` runs in another process"]
fn started() {
    let role: Role = serde_json::from_str(&std::env::var(VARIABLE).unwrap()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stop = CancellationToken::new();
    let stop_with_input = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop_with_input.cancel();
    });
    let signals = stop.clone();
    runtime.block_on(async move {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        tokio::select! {
            () = run(role, stop) => {}
            () = async { terminate.recv().await; signals.cancel(); std::future::pending().await } => {}
        }
    });
}

async fn run(role: Role, stop: CancellationToken) {
    let (directory, agent) = match role {
        Role::Launcher {
            router,
            claim_token,
            directory,
            concurrent,
            sessions_per_pod,
        } => {
            let mut config = LauncherConfig::new(router, claim_token, directory);
            config.concurrent = concurrent;
            config.sessions_per_pod = sessions_per_pod;
            config.grace_period = Duration::from_secs(8);
            config.router_timeout = Duration::from_secs(2);
            let end = launcher::run(config, stop).await.unwrap();
            assert_ne!(end, LauncherEnd::Stopped);
            return;
        }
        Role::Guarded(role) => {
            let status = shim::run_guarded(again(&role), stop).await.unwrap();
            assert!(status.success(), "below the guard: {status}");
            return;
        }
        Role::Plugins {
            socket,
            python,
            code,
            unresponsive_after,
        } => {
            shim::guard_this_process().unwrap();
            let config = PluginsConfig {
                socket,
                python,
                code: Some(code),
                environment: shim::clean_environment(std::env::vars_os(), false, &[]),
                unresponsive_after,
            };
            return plugins::run(config, stop).await.unwrap();
        }
        Role::Command { directory, command } => (
            directory,
            Agent::Command(command.into_iter().map(Into::into).collect()),
        ),
        Role::Function {
            directory,
            path,
            python,
            code,
            parameters,
        } => (
            directory,
            Agent::Function(Function {
                path,
                python,
                code: Some(code),
                parameters,
            }),
        ),
    };
    shim::guard_this_process().unwrap();
    let given = [
        ("GIVEN".to_owned(), "by the user".to_owned()),
        ("GIVEN_DIR".to_owned(), directory.display().to_string()),
    ];
    let config = ShimConfig {
        directory,
        agent,
        environment: shim::clean_environment(std::env::vars_os(), false, &given),
        launcher_timeout: Duration::from_secs(10),
        grace_period: Duration::from_secs(8),
        echo: false,
    };
    shim::run(config, stop).await.unwrap();
}
