//! One process of the Python host.

use std::{
    collections::HashSet,
    ffi::OsString,
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream as StdUnixStream, process::ExitStatusExt},
    },
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::UnixStream,
    process::{Child, Command},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{
    environment::MARK,
    memory::OutOfMemory,
    output::Output,
    processes::{Ending, Processes, signal_group},
};
use crate::{
    echo::Echo,
    wire::{self, FromLauncher, FromShim},
};

/// What every host process is started with.
#[derive(Debug)]
pub(super) struct HostConfig {
    pub(super) python: PathBuf,
    /// `host.py`.
    pub(super) script: PathBuf,
    /// Its arguments.
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) echo: Echo,
    pub(super) processes: Processes,
    pub(super) memory: OutOfMemory,
}

/// What a host process did.
#[derive(Debug)]
pub(super) enum HostEvent {
    /// It said something.
    Said(FromShim),
    /// It ended, and everything below it.
    Exited {
        how: String,
        signal: Option<i32>,
        log_tail: Option<String>,
        clean: bool,
    },
}

/// A running host process; dropping it kills it.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) id: u64,
    pub(super) pid: i32,
    pub(super) mark: String,
    outbox: mpsc::UnboundedSender<FromLauncher>,
    kill: CancellationToken,
}

impl Host {
    /// Starts a process. What it does is sent to `events` with `id`; `Exited` is the last.
    pub(super) fn start(
        config: &Arc<HostConfig>,
        id: u64,
        events: mpsc::UnboundedSender<(u64, HostEvent)>,
        tasks: &tokio_util::task::TaskTracker,
    ) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let stream = UnixStream::from_std(ours)?;
        let mark = format!("{:032x}", rand::random::<u128>());
        let mut command = Command::new(&config.python);
        command
            .arg("-u")
            .arg(&config.script)
            .args(&config.arguments)
            .env_clear()
            .envs(config.environment.iter().map(|(name, value)| (name, value)))
            .env(MARK, &mark)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (mut child, pid) = config.processes.spawn(&mut command)?;
        // The command holds the host's end of the socket.
        drop(command);
        let output = Output::of(&mut child, &config.echo);
        let (outbox, inbox) = mpsc::unbounded_channel();
        let kill = CancellationToken::new();
        let host = Self {
            id,
            pid,
            mark: mark.clone(),
            outbox,
            kill: kill.clone(),
        };
        let process = Running {
            config: Arc::clone(config),
            child,
            pid,
            mark,
            output,
        };
        tasks.spawn(async move {
            let (read, write) = stream.into_split();
            let said = events.clone();
            let broken = tokio::select! {
                broken = read_all(read, id, said) => broken,
                () = write_all(write, inbox) => None,
                () = kill.cancelled() => None,
            };
            let exited = process.end(&kill, broken).await;
            let _ = events.send((id, exited));
        });
        Ok(host)
    }

    /// Tells it something.
    pub(super) fn tell(&self, message: FromLauncher) {
        if self.outbox.send(message).is_err() {
            tracing::debug!(host = self.id, "a host that ended cannot be told anything");
        }
    }

    /// Kills it.
    pub(super) fn kill(&self) {
        self.kill.cancel();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill.cancel();
    }
}

/// Reads to the end; answers what was wrong when it was no message that came.
async fn read_all(
    read: tokio::net::unix::OwnedReadHalf,
    id: u64,
    events: mpsc::UnboundedSender<(u64, HostEvent)>,
) -> Option<String> {
    let mut reader = BufReader::new(read);
    loop {
        match wire::read::<FromShim>(&mut reader).await {
            Ok(Some(message)) => {
                if events.send((id, HostEvent::Said(message))).is_err() {
                    return None;
                }
            }
            Ok(None) => return None,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
            Err(error) => return Some(error.to_string()),
        }
    }
}

async fn write_all(
    mut write: tokio::net::unix::OwnedWriteHalf,
    mut inbox: mpsc::UnboundedReceiver<FromLauncher>,
) {
    while let Some(lines) = wire::next_burst(&mut inbox).await {
        if let Err(error) = write.write_all(&lines).await {
            tracing::debug!(%error, "the Python host does not read");
            break;
        }
    }
    // What it said before is still to be read, to the end.
    std::future::pending::<()>().await;
}

struct Running {
    config: Arc<HostConfig>,
    child: Child,
    pid: i32,
    mark: String,
    output: Output,
}

impl Running {
    /// Waits for the process, whose protocol is over, and ends what is left.
    async fn end(mut self, kill: &CancellationToken, broken: Option<String>) -> HostEvent {
        let status = tokio::select! {
            status = self.child.wait() => status,
            () = wait_or(kill) => {
                signal_group(self.pid, Signal::SIGKILL);
                self.child.wait().await
            }
        };
        let ending = Ending {
            leader: self.pid,
            mark: self.mark,
            keep: HashSet::new(),
        };
        let clean = self.config.processes.end(&ending).await;
        self.config.processes.release(self.pid);
        let log_tail = self.output.last().await;
        let (mut how, signal) = describe(status);
        if let Some(problem) = broken {
            how = format!("the Python host broke its protocol ({problem}) and was ended");
        }
        HostEvent::Exited {
            how,
            signal,
            log_tail,
            clean,
        }
    }
}

/// A process that closed its protocol has a moment to end by itself.
async fn wait_or(kill: &CancellationToken) {
    let moment = std::time::Duration::from_millis(500);
    tokio::select! {
        () = kill.cancelled() => {}
        () = tokio::time::sleep(moment) => {}
    }
}

fn describe(status: io::Result<ExitStatus>) -> (String, Option<i32>) {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (_, Some(signal)) => (
                format!("the Python host was killed by signal {signal}"),
                Some(signal),
            ),
            (Some(code), None) => (format!("the Python host ended with exit code {code}"), None),
            (None, None) => ("the Python host ended in an unknown way".to_owned(), None),
        },
        Err(error) => (
            format!("the Python host cannot be waited for: {error}"),
            None,
        ),
    }
}
