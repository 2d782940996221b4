//! Runs a command per session: a process group of its own, its files and variables, and nothing of it is left at the end.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio::{
    process::{Child, Command},
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};

use super::{
    Request, environment,
    files::SessionFiles,
    memory::OutOfMemory,
    output::Output,
    processes::{Ending, Processes, signal_group},
};
use crate::{
    echo::Echo,
    wire::{Abort, AbortDone, Ended, FromShim, HookResult, LoadFailure, Start, seconds},
};

/// What every session of a command shares.
#[derive(Debug)]
pub(super) struct Commands {
    pub(super) command: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Where the sessions' directories are made.
    pub(super) directory: PathBuf,
    pub(super) echo: Echo,
    pub(super) processes: Processes,
    pub(super) memory: OutOfMemory,
}

/// What a running session is told; each value is further than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    GoOn,
    /// It is aborted, and may end by itself.
    Terminate,
    /// It is to end within this time.
    Cancel(Duration),
}

/// Serves the requests of the shim until they end.
pub(super) async fn serve(
    commands: Commands,
    mut requests: mpsc::UnboundedReceiver<Request>,
    events: mpsc::UnboundedSender<FromShim>,
) {
    let commands = Arc::new(commands);
    let mut running: JoinSet<String> = JoinSet::new();
    let mut told: HashMap<String, watch::Sender<Told>> = HashMap::new();
    loop {
        let request = tokio::select! {
            Some(ended) = running.join_next(), if !running.is_empty() => {
                if let Ok(session_id) = ended {
                    told.remove(&session_id);
                }
                continue;
            }
            request = requests.recv() => request,
        };
        match request {
            Some(Request::Announce) => tell(&events, FromShim::Ready),
            Some(Request::Start(start)) => {
                let (sender, receiver) = watch::channel(Told::GoOn);
                told.insert(start.session_id.clone(), sender);
                let (commands, events) = (Arc::clone(&commands), events.clone());
                running.spawn(async move {
                    let ended = commands.run(&start, receiver).await;
                    tell(&events, FromShim::ended(ended));
                    start.session_id
                });
            }
            Some(Request::Terminate(session_id)) => {
                if let Some(session) = told.get(&session_id) {
                    tell_session(session, Told::Terminate);
                }
            }
            Some(Request::Cancel(cancel)) => {
                if let Some(session) = told.get(&cancel.session_id) {
                    tell_session(session, Told::Cancel(seconds(cancel.grace_seconds)));
                }
            }
            Some(Request::Abort(abort)) => tell(&events, FromShim::AbortDone(no_hook(abort))),
            Some(Request::EndAll { done, .. }) => {
                end_all(&mut running, &told).await;
                told.clear();
                let _ = done.send(());
            }
            None => return end_all(&mut running, &told).await,
        }
    }
}

async fn end_all(running: &mut JoinSet<String>, told: &HashMap<String, watch::Sender<Told>>) {
    for session in told.values() {
        tell_session(session, Told::Cancel(Duration::ZERO));
    }
    while running.join_next().await.is_some() {}
}

/// Nothing takes back what a session was told.
fn tell_session(session: &watch::Sender<Told>, what: Told) {
    session.send_if_modified(|told| {
        let further = what > *told;
        *told = what.max(*told);
        further
    });
}

/// A command has no hook: it gets SIGTERM when its session is aborted.
fn no_hook(abort: Abort) -> AbortDone {
    AbortDone {
        abort_id: abort.abort_id,
        result: HookResult::None,
        error: None,
    }
}

fn tell(events: &mpsc::UnboundedSender<FromShim>, event: FromShim) {
    if events.send(event).is_err() {
        tracing::debug!("the shim ends: nobody is told");
    }
}

impl Commands {
    async fn run(&self, start: &Start, mut told: watch::Receiver<Told>) -> Ended {
        let session_id = &start.session_id;
        let files = match SessionFiles::create(&self.directory, start) {
            Ok(files) => files,
            Err(error) => {
                return Ended::infra(
                    session_id,
                    format!("the session's files cannot be written: {error}"),
                );
            }
        };
        let mark = format!("{:032x}", rand::random::<u128>());
        let Some((program, arguments)) = self.command.split_first() else {
            return Ended::infra(session_id, "there is no command");
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(environment::of_session(start, &mark))
            .envs(files.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let killed_before = self.memory.kills();
        let (mut child, leader) = match self.processes.spawn(&mut command) {
            Ok(spawned) => spawned,
            Err(error) => {
                let program = program.to_string_lossy();
                let failure = LoadFailure::of_program(&format!("the command {program:?}"), &error);
                return Ended::load_failed(session_id, &failure);
            }
        };
        let output = Output::of(&mut child, &self.echo);
        let status = wait_or_end(&mut child, leader, &mut told).await;
        let clean = self
            .processes
            .end(&Ending {
                leader,
                mark,
                keep: HashSet::new(),
            })
            .await;
        self.processes.release(leader);
        let log_tail = output.last().await;
        let mut ended = describe(session_id, status, &files);
        ended.clean = clean;
        if !ended.is_well() {
            ended.log_tail = log_tail;
            if self.memory.kills() > killed_before {
                ended = ended.out_of_memory();
            }
        }
        ended
    }
}

/// Waits for the end of a command, and sees to it once the session is told to end.
async fn wait_or_end(
    child: &mut Child,
    leader: i32,
    told: &mut watch::Receiver<Told>,
) -> std::io::Result<ExitStatus> {
    let mut so_far = Told::GoOn;
    loop {
        let now = tokio::select! {
            status = child.wait() => return status,
            now = further(told, so_far) => now,
        };
        if so_far < Told::Terminate {
            signal_group(leader, Signal::SIGTERM);
        }
        so_far = now;
        if let Told::Cancel(grace) = now {
            if let Ok(status) = timeout(grace, child.wait()).await {
                return status;
            }
            signal_group(leader, Signal::SIGKILL);
            return child.wait().await;
        }
    }
}

/// Waits for something further than `so_far`; a shim that is gone wants the end.
async fn further(told: &mut watch::Receiver<Told>, so_far: Told) -> Told {
    match told.wait_for(|told| *told > so_far).await {
        Ok(told) => *told,
        Err(_) => Told::Cancel(Duration::ZERO),
    }
}

fn describe(session_id: &str, status: std::io::Result<ExitStatus>, files: &SessionFiles) -> Ended {
    let status = match status {
        Ok(status) => status,
        Err(error) => {
            return Ended::infra(
                session_id,
                format!("the command cannot be waited for: {error}"),
            );
        }
    };
    let (result, problem) = match files.result() {
        Ok(result) => (result, None),
        Err(problem) => (None, Some(problem)),
    };
    let error = match (status.code(), status.signal()) {
        (Some(0), _) => problem,
        (Some(code), _) => Some(format!("the command ended with exit code {code}")),
        (None, Some(signal)) => Some(format!("the command was killed by signal {signal}")),
        (None, None) => Some("the command ended in an unknown way".to_owned()),
    };
    Ended {
        session_id: session_id.to_owned(),
        exit_code: status.code(),
        signal: status.signal(),
        result,
        error,
        clean: true,
        ..Ended::default()
    }
}
