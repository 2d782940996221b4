//! Runs the Python host as the driver's plug-in host, and keeps it running.
//!
//! Inputs: the socket's path, the interpreter, and the directory of the user's modules. A host that dies is started again after a
//! pause that grows; one that does not answer is killed. It ends with its supervisor, also when that is killed, and takes along what
//! its plug-ins started, however that detached itself.
//!
//! Caveat: everything below the calling process is ended with a host, so it has to be a process of its own, and the reaper of its
//! orphans ([`crate::shim::guard_this_process`]).

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, BufReader},
    net::UnixStream,
    process::Command,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    echo::Echo,
    private::PrivateDirectory,
    python,
    shim::{Ending, Processes},
    socket, wire,
};

/// First and longest pause before a start.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A host that lived so long is started again without a pause.
const HEALTHY_AFTER: Duration = Duration::from_mins(1);

/// Starts without ever having answered, after which the supervisor gives up.
const MAX_FAILED_STARTS: u32 = 5;

/// How often the host is asked whether it answers.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// What a plug-in host is started with.
#[derive(Debug, Clone)]
pub struct PluginsConfig {
    /// Where it listens.
    pub socket: PathBuf,
    /// The interpreter.
    pub python: PathBuf,
    /// Directory that is put in front of `sys.path`.
    pub code: Option<PathBuf>,
    /// Its environment. See [`crate::shim::clean_environment`].
    pub environment: Vec<(OsString, OsString)>,
    /// How long it may take to answer before it is killed: an import, or a grader that blocks the event loop.
    pub unresponsive_after: Duration,
}

/// Why the supervisor gave up.
#[derive(Debug, thiserror::Error)]
pub enum PluginsError {
    /// The host's files cannot be written beside the socket.
    #[error("cannot write beside the socket {socket}", socket = socket.display())]
    Files {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The interpreter cannot be started.
    #[error("the interpreter {python} cannot be started", python = python.display())]
    Start {
        /// The interpreter.
        python: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The host never answered.
    #[error(
        "the plug-in host ended {starts} times without having answered, the last time with {status}"
    )]
    NeverReady {
        /// How often it was started.
        starts: u32,
        /// How it ended.
        status: String,
    },
}

/// Runs the host until `stop`.
///
/// # Errors
/// See [`PluginsError`].
pub async fn run(config: PluginsConfig, stop: CancellationToken) -> Result<(), PluginsError> {
    let files_error = |source| PluginsError::Files {
        socket: config.socket.clone(),
        source,
    };
    let parent = config
        .socket
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let private = PrivateDirectory::create(parent, "plugins").map_err(files_error)?;
    let script = python::install(private.path()).map_err(files_error)?;
    let echo = Echo::new(true);
    let processes = Processes::here();
    let mut pause = PAUSES.0;
    let mut failed_starts = 0;
    while !stop.is_cancelled() {
        let started = Instant::now();
        let end = run_once(&config, &script, &processes, &echo, &stop).await?;
        let End::Died { status, answered } = end else {
            break;
        };
        failed_starts = if answered { 0 } else { failed_starts + 1 };
        if failed_starts >= MAX_FAILED_STARTS {
            return Err(PluginsError::NeverReady {
                starts: failed_starts,
                status,
            });
        }
        if started.elapsed() >= HEALTHY_AFTER {
            pause = PAUSES.0;
        }
        tracing::warn!(status, "the plug-in host is started again");
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => {}
        }
        pause = (pause * 2).min(PAUSES.1);
    }
    Ok(())
}

enum End {
    Stopped,
    Died { status: String, answered: bool },
}

async fn run_once(
    config: &PluginsConfig,
    script: &Path,
    processes: &Processes,
    echo: &Echo,
    stop: &CancellationToken,
) -> Result<End, PluginsError> {
    let mut command = Command::new(&config.python);
    command
        .arg("-u")
        .arg(script)
        .arg("--plugins")
        .arg(&config.socket);
    if let Some(code) = &config.code {
        command.arg("--code").arg(code);
    }
    command
        .env_clear()
        .envs(config.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let start_error = |source| PluginsError::Start {
        python: config.python.clone(),
        source,
    };
    let (mut child, leader) = processes.spawn(&mut command).map_err(start_error)?;
    // The host ends when this pipe is closed; waiting for a child would close it.
    let input = child.stdin.take();
    let mut readers = JoinSet::new();
    if let Some(stream) = child.stdout.take() {
        readers.spawn(pass_on(stream, echo.clone()));
    }
    if let Some(stream) = child.stderr.take() {
        readers.spawn(pass_on(stream, echo.clone()));
    }
    let mut answered = false;
    let status = tokio::select! {
        status = child.wait() => Some(describe(status)),
        () = unresponsive(config, &mut answered) => {
            let seconds = config.unresponsive_after.as_secs();
            Some(format!("no answer for {seconds} s; it was killed"))
        }
        () = stop.cancelled() => None,
    };
    drop(input);
    processes.end(&Ending::everything(leader)).await;
    if let Err(error) = child.wait().await {
        tracing::warn!(%error, "the plug-in host cannot be waited for");
    }
    processes.release(leader);
    Ok(status.map_or(End::Stopped, |status| End::Died { status, answered }))
}

/// Returns once the host has not answered for too long.
async fn unresponsive(config: &PluginsConfig, answered: &mut bool) {
    let mut heard = Instant::now();
    loop {
        let ping = timeout(config.unresponsive_after, ping(&config.socket)).await;
        if matches!(ping, Ok(Ok(()))) {
            heard = Instant::now();
            *answered = true;
        }
        if heard.elapsed() >= config.unresponsive_after {
            return;
        }
        sleep(if *answered { PING_INTERVAL } else { PAUSES.0 }).await;
    }
}

async fn ping(path: &Path) -> io::Result<()> {
    let mut stream: UnixStream = socket::connect_to(path).await?;
    wire::write(&mut stream, &json!({"id": 0, "call": "ping"})).await?;
    let answer: Option<Value> = wire::read(&mut BufReader::new(&mut stream)).await?;
    match answer {
        Some(answer) if answer["result"] == "pong" => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

async fn pass_on(mut stream: impl AsyncRead + Unpin, echo: Echo) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length) = stream.read(&mut buffer).await {
        if length == 0 {
            return;
        }
        echo.push(&buffer[..length]);
    }
}

fn describe(status: io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}
