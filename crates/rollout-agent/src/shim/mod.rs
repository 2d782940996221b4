//! The shim: runs the user's code for the launcher.
//!
//! Inputs: the directory of `launcher.sock`, and a command or a Python function. It is told one session at a time and knows nothing
//! that opens, scores or ends another one.
//!
//! Guarantees: the user's code gets a clean environment; every session ends exactly once; what a session leaves behind is ended with
//! it; when the launcher is lost, all sessions are ended at once; output of any length costs 64 KiB.
//!
//! Caveats: commands that run at the same time in one shim are processes of one user, who can read each other's environment through
//! `/proc`: an agent that runs what a policy writes gets a pod of its own (`concurrentSessionsPerPod: 1`). Sessions of a function
//! share their process by design. What a function starts in a session ends when no session is left in its process; what its module
//! starts when it is imported stays.

mod aborts;
mod command;
mod environment;
mod files;
mod guard;
mod host;
mod hosts;
mod live;
mod log_tail;
mod memory;
mod output;
mod processes;

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

#[cfg(test)]
pub(crate) use self::hosts::ANSWER_TIMEOUT;
pub(crate) use self::processes::{Ending, Processes};
use self::{command::Commands, host::HostConfig, memory::OutOfMemory};
pub use self::{
    environment::base as clean_environment,
    guard::run_guarded,
    processes::{guard_this_process, hide_this_process},
};
use crate::{
    echo::Echo,
    private::PrivateDirectory,
    python, socket,
    wire::{self, Abort, AgentKind, Cancel, FromLauncher, FromShim, Start},
};

const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// What a shim runs.
#[derive(Debug, Clone)]
pub enum Agent {
    /// A process per session.
    Command(Vec<OsString>),
    /// A Python function.
    Function(Function),
}

/// A Python function.
#[derive(Debug, Clone)]
pub struct Function {
    /// `module.attr`.
    pub path: String,
    /// The interpreter.
    pub python: PathBuf,
    /// Directory that is put in front of `sys.path`.
    pub code: Option<PathBuf>,
    /// JSON file with the job's parameters.
    pub parameters: Option<PathBuf>,
}

/// What a shim is started with.
#[derive(Debug, Clone)]
pub struct ShimConfig {
    /// Where `launcher.sock` is.
    pub directory: PathBuf,
    /// What is run.
    pub agent: Agent,
    /// The environment of the user's code, without what belongs to a session. See [`clean_environment`].
    pub environment: Vec<(OsString, OsString)>,
    /// How long the launcher may be away.
    pub launcher_timeout: Duration,
    /// The pod's grace period; when told to terminate, the shim ends after half of it at the latest.
    pub grace_period: Duration,
    /// Whether the output of the user's code is passed on to standard error.
    pub echo: bool,
}

/// Why a shim ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// The launcher stayed away.
    #[error("the launcher cannot be reached in {directory}", directory = directory.display())]
    LauncherMissing {
        /// Where it was looked for.
        directory: PathBuf,
        /// Why the last try failed.
        #[source]
        source: io::Error,
    },
    /// The shim's own files cannot be written.
    #[error("cannot write into {directory}", directory = directory.display())]
    Files {
        /// The directory.
        directory: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What the part that runs processes is asked for.
#[derive(Debug)]
enum Request {
    /// Say whether sessions can start.
    Announce,
    Start(Box<Start>),
    /// The session is aborted: its command gets SIGTERM.
    Terminate(String),
    Cancel(Cancel),
    Abort(Abort),
    /// End all sessions now; `again`: there will be others.
    EndAll {
        again: bool,
        done: oneshot::Sender<()>,
    },
}

/// How a connection ended.
enum Connection {
    Lost,
    Exit,
}

/// Runs sessions for the launcher until it says `exit`, or `stop` and half the grace period.
///
/// # Errors
/// See [`ShimError`].
pub async fn run(config: ShimConfig, stop: CancellationToken) -> Result<(), ShimError> {
    let files_error = |source| ShimError::Files {
        directory: config.directory.clone(),
        source,
    };
    let private = PrivateDirectory::create(&config.directory, "shim").map_err(files_error)?;
    let (events, told) = mpsc::unbounded_channel();
    let (requests, inbox) = mpsc::unbounded_channel();
    let mut backend = JoinSet::new();
    let kind = match &config.agent {
        Agent::Command(command) => {
            let commands = Commands {
                command: command.clone(),
                environment: config.environment.clone(),
                directory: private.path().to_owned(),
                echo: Echo::new(config.echo),
                processes: Processes::here(),
                memory: OutOfMemory::default(),
            };
            backend.spawn(command::serve(commands, inbox, events.clone()));
            AgentKind::Command
        }
        Agent::Function(function) => {
            let script = python::install(private.path()).map_err(files_error)?;
            backend.spawn(hosts::serve(
                host_config(&config, function, script),
                inbox,
                events.clone(),
            ));
            AgentKind::Function
        }
    };
    let mut shim = Shim {
        config: &config,
        kind,
        requests,
        events,
        told,
    };
    let result = shim.serve(&stop).await;
    drop(shim);
    while backend.join_next().await.is_some() {}
    result
}

fn host_config(config: &ShimConfig, function: &Function, script: PathBuf) -> HostConfig {
    let mut arguments: Vec<OsString> = vec!["--function".into(), function.path.clone().into()];
    if let Some(code) = &function.code {
        arguments.extend(["--code".into(), code.into()]);
    }
    if let Some(parameters) = &function.parameters {
        arguments.extend(["--parameters".into(), parameters.into()]);
    }
    HostConfig {
        python: function.python.clone(),
        script,
        arguments,
        environment: config.environment.clone(),
        echo: Echo::new(config.echo),
        processes: Processes::here(),
        memory: OutOfMemory::default(),
    }
}

struct Shim<'a> {
    config: &'a ShimConfig,
    kind: AgentKind,
    requests: mpsc::UnboundedSender<Request>,
    events: mpsc::UnboundedSender<FromShim>,
    told: mpsc::UnboundedReceiver<FromShim>,
}

impl Shim<'_> {
    async fn serve(&mut self, stop: &CancellationToken) -> Result<(), ShimError> {
        loop {
            let stream = tokio::select! {
                stream = self.connect() => stream?,
                () = stop.cancelled() => return Ok(()),
            };
            if matches!(self.talk(stream, stop).await, Connection::Exit) {
                return Ok(());
            }
            tracing::warn!("the launcher is lost: all sessions end");
            let (done, ended) = oneshot::channel();
            if self
                .requests
                .send(Request::EndAll {
                    again: !stop.is_cancelled(),
                    done,
                })
                .is_ok()
            {
                let _ = ended.await;
            }
            while self.told.try_recv().is_ok() {}
        }
    }

    async fn connect(&self) -> Result<UnixStream, ShimError> {
        let until = Instant::now() + self.config.launcher_timeout;
        loop {
            match socket::connect(&self.config.directory).await {
                Ok(stream) => return Ok(stream),
                Err(source) if Instant::now() >= until => {
                    return Err(ShimError::LauncherMissing {
                        directory: self.config.directory.clone(),
                        source,
                    });
                }
                Err(_) => sleep(CONNECT_PAUSE).await,
            }
        }
    }

    async fn talk(&mut self, stream: UnixStream, stop: &CancellationToken) -> Connection {
        let (read, mut write) = stream.into_split();
        let hello = FromShim::Hello {
            kind: self.kind,
            pid: std::process::id(),
        };
        if wire::write(&mut write, &hello).await.is_err() {
            return Connection::Lost;
        }
        let _ = self.requests.send(Request::Announce);
        let (requests, told) = (&self.requests, &mut self.told);
        let telling = async {
            while let Some(lines) = wire::next_burst(told).await {
                if write.write_all(&lines).await.is_err() {
                    return;
                }
            }
        };
        let talking = async {
            tokio::select! {
                connection = listen(read, requests) => connection,
                () = telling => Connection::Lost,
            }
        };
        tokio::pin!(talking);
        tokio::select! {
            connection = &mut talking => return connection,
            () = stop.cancelled() => {}
        }
        tracing::info!("told to terminate; the launcher ends the sessions");
        let _ = self.events.send(FromShim::Stopping);
        timeout(self.config.grace_period / 2, talking)
            .await
            .unwrap_or(Connection::Exit)
    }
}

async fn listen(
    read: tokio::net::unix::OwnedReadHalf,
    requests: &mpsc::UnboundedSender<Request>,
) -> Connection {
    let mut reader = BufReader::new(read);
    loop {
        let request = match wire::read::<FromLauncher>(&mut reader).await {
            Ok(Some(FromLauncher::Start(start))) => Request::Start(start),
            Ok(Some(FromLauncher::Terminate { session_id })) => Request::Terminate(session_id),
            Ok(Some(FromLauncher::Cancel(cancel))) => Request::Cancel(cancel),
            Ok(Some(FromLauncher::Abort(abort))) => Request::Abort(abort),
            Ok(Some(FromLauncher::Exit)) => return Connection::Exit,
            Ok(Some(FromLauncher::Unknown)) => continue,
            Ok(None) => return Connection::Lost,
            Err(error) => {
                tracing::warn!(%error, "the launcher's connection broke");
                return Connection::Lost;
            }
        };
        if requests.send(request).is_err() {
            return Connection::Lost;
        }
    }
}
