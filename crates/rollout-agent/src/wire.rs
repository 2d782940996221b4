//! The messages between launcher and shim, and between shim and Python host: one JSON object per line.

use std::{io, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

/// Longest line that is read, in bytes.
pub const MAX_LINE: u64 = 64 * 1024 * 1024;

/// Messages that are written at once.
const MAX_BURST: usize = 256;

/// What the shim runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// A Python function, in a host process that runs many sessions.
    Function,
    /// A process per session.
    Command,
}

/// Whose doing the end of a session was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The agent's own: it is a result, and scored.
    #[default]
    Agent,
    /// Nobody's result: the session is run again.
    Infra,
}

/// How an `abort` hook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookResult {
    /// It returned.
    Succeeded,
    /// There is none.
    None,
    /// It raised, or its process died.
    Failed,
    /// It did not end in time.
    TimedOut,
}

/// A session to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The session's id.
    pub session_id: String,
    /// Where the agent sends its requests; contains `/sessions/<id>`.
    pub base_url: String,
    /// The session's bearer token.
    #[serde(default)]
    pub token: String,
    /// Chat messages, or a text.
    #[serde(default)]
    pub prompt: Value,
    /// Sampling defaults for the agent's requests.
    #[serde(default)]
    pub request_kwargs: Map<String, Value>,
    /// The sample's metadata.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// Seconds until the launcher ends the session.
    #[serde(default)]
    pub deadline_seconds: Option<f64>,
    /// Whether a partial trajectory is resumed.
    #[serde(default)]
    pub resume: bool,
    /// Whether it has a process of its own, where sessions share one.
    #[serde(default)]
    pub alone: bool,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Ended {
    /// The session's id.
    pub session_id: String,
    /// Exit code of the process, or 0 and 1 for a function that returned or raised.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// The signal that killed the process.
    #[serde(default)]
    pub signal: Option<i32>,
    /// What the agent returned or wrote.
    #[serde(default)]
    pub result: Option<Map<String, Value>>,
    /// What went wrong, in words, or a traceback.
    #[serde(default)]
    pub error: Option<String>,
    /// The last output of an agent that did not end well.
    #[serde(default)]
    pub log_tail: Option<String>,
    /// Whose doing it was.
    #[serde(default)]
    pub fault: Fault,
    /// Whether every process of the session is gone.
    #[serde(default = "yes")]
    pub clean: bool,
    /// Nobody said so: the agent's container is gone.
    #[serde(skip)]
    pub lost: bool,
}

fn yes() -> bool {
    true
}

fn nobodys() -> Fault {
    Fault::Infra
}

impl Ended {
    /// The end of a session that is nobody's result.
    pub fn infra(session_id: &str, error: impl Into<String>) -> Self {
        Self {
            session_id: session_id.to_owned(),
            error: Some(error.into()),
            fault: Fault::Infra,
            clean: true,
            ..Self::default()
        }
    }
}

/// Metadata of a session whose process ran others too, and died: nobody knows which of them did it.
const SHARED_DEATH: &str = "shared_process_died";

/// Metadata of a session whose agent's container ran out of memory.
const OUT_OF_MEMORY: &str = "out_of_memory";

/// Metadata of a session that could not run because the agent itself cannot: another pod will hardly do better.
const LOAD_FAILED: &str = "agent_load_failed";

/// Whose doing that is, when it is known to be the agent's: then it fails everywhere.
const LOAD_FAULT: &str = "agent_load_fault";

/// Why an agent cannot be loaded or started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFailure {
    /// In words, or a traceback.
    pub error: String,
    /// [`Fault::Agent`] for what its code, command or interpreter does everywhere; [`Fault::Infra`] when nobody knows that.
    pub fault: Fault,
}

impl LoadFailure {
    /// One that may be gone elsewhere, or the next time.
    pub fn unexplained(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            fault: Fault::Infra,
        }
    }

    /// A program that cannot be started: one that is not there, or not a program, never will be.
    pub fn of_program(what: &str, error: &io::Error) -> Self {
        let fault = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Fault::Agent,
            _ => Fault::Infra,
        };
        Self {
            error: format!("{what} cannot be started: {error}"),
            fault,
        }
    }
}

impl Ended {
    /// The same of a session that may or may not have killed the process that it shared.
    #[must_use]
    pub fn shared_death(mut self) -> Self {
        self.fault = Fault::Infra;
        self.result = Some(Map::from_iter([(
            SHARED_DEATH.to_owned(),
            Value::Bool(true),
        )]));
        self
    }

    /// The same of a session that failed while the kernel killed processes of its container for want of memory.
    #[must_use]
    pub fn out_of_memory(mut self) -> Self {
        const WHY: &str = "the memory limit of the agent's container was used up, and the kernel killed a process in it";
        self.fault = Fault::Infra;
        self.error = Some(match self.error {
            Some(error) => format!("{WHY}: {error}"),
            None => WHY.to_owned(),
        });
        let mut result = self.result.unwrap_or_default();
        result.insert(OUT_OF_MEMORY.to_owned(), Value::Bool(true));
        self.result = Some(result);
        self
    }

    /// Whether the agent ended well.
    pub fn is_well(&self) -> bool {
        self.exit_code == Some(0) && self.error.is_none()
    }

    /// The end of a session whose agent's container is gone.
    pub fn lost(session_id: &str) -> Self {
        Self {
            lost: true,
            ..Self::infra(session_id, "the agent's container was lost")
        }
    }

    /// The end of a session whose agent cannot be loaded or started.
    pub fn load_failed(session_id: &str, failure: &LoadFailure) -> Self {
        let mut ended = Self::infra(session_id, &failure.error);
        let mut metadata = Map::from_iter([(LOAD_FAILED.to_owned(), Value::Bool(true))]);
        if failure.fault == Fault::Agent {
            metadata.insert(LOAD_FAULT.to_owned(), Value::from("agent"));
        }
        ended.result = Some(metadata);
        ended
    }
}

/// An abort to run the hook for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Abort {
    /// One abort has one id, however many sessions it ends.
    pub abort_id: String,
    /// How long the hook may take.
    pub timeout_seconds: f64,
    /// The attributes of the hook's `args`, beside the job's parameters.
    #[serde(default)]
    pub args: Map<String, Value>,
}

/// The report on a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortDone {
    /// The abort's id.
    pub abort_id: String,
    /// How the hook ended.
    pub result: HookResult,
    /// What went wrong.
    #[serde(default)]
    pub error: Option<String>,
}

/// A session to end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cancel {
    /// The session's id.
    pub session_id: String,
    /// How long the agent may take to end by itself.
    #[serde(default = "default_grace")]
    pub grace_seconds: f64,
}

fn default_grace() -> f64 {
    0.5
}

/// What the launcher says; the shim says the same to the Python host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromLauncher {
    /// Run a session.
    Start(Box<Start>),
    /// Run the hook.
    Abort(Abort),
    /// Tell the command of a session, by SIGTERM, that it is aborted; it may still end by itself.
    Terminate {
        /// The session's id.
        session_id: String,
    },
    /// End a session.
    Cancel(Cancel),
    /// End.
    Exit,
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// What the shim says; the Python host says a part of it to the shim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromShim {
    /// The first message of a connection.
    Hello {
        /// What the shim runs.
        kind: AgentKind,
        /// Its process id, for logs.
        pid: u32,
    },
    /// Sessions may start.
    Ready,
    /// The agent cannot be loaded.
    Failed {
        /// Why.
        error: String,
        /// Whose doing it is.
        #[serde(default = "nobodys")]
        fault: Fault,
    },
    /// A session ended.
    Ended(Box<Ended>),
    /// The hook ended.
    AbortDone(AbortDone),
    /// A session ignores its cancellation (Python host to shim only).
    Stuck {
        /// The session's id.
        session_id: String,
    },
    /// The shim was told to terminate.
    Stopping,
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

impl From<LoadFailure> for FromShim {
    fn from(LoadFailure { error, fault }: LoadFailure) -> Self {
        Self::Failed { error, fault }
    }
}

impl FromShim {
    /// A session ended.
    pub fn ended(ended: Ended) -> Self {
        Self::Ended(Box::new(ended))
    }
}

/// A duration from a number of the wire; nonsense is zero, and a century is enough.
pub(crate) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.min(3.2e9)).unwrap_or_default()
}

/// Reads the next message; `None` at the end of the stream.
///
/// # Errors
/// The stream's own, and `InvalidData` for a line that is too long or not a message.
pub async fn read<T: DeserializeOwned>(
    reader: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let length = reader.take(MAX_LINE).read_until(b'\n', &mut line).await?;
    if length == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        let problem = if length as u64 >= MAX_LINE {
            "a line that is too long"
        } else {
            "a line that breaks off"
        };
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    serde_json::from_slice(&line)
        .map(Some)
        .map_err(io::Error::from)
}

/// Waits for a message to send, and takes what waits behind it. One write for all keeps a burst of sessions short.
pub(crate) async fn next_burst<T: Serialize>(
    messages: &mut mpsc::UnboundedReceiver<T>,
) -> Option<Vec<u8>> {
    let mut burst = Vec::new();
    messages.recv_many(&mut burst, MAX_BURST).await;
    let mut lines = Vec::new();
    for message in &burst {
        match serde_json::to_vec(message) {
            Ok(mut line) => lines.append(&mut line),
            Err(error) => {
                tracing::error!(%error, "a message has no JSON form");
                continue;
            }
        }
        lines.push(b'\n');
    }
    (!burst.is_empty()).then_some(lines)
}

/// Writes one message.
///
/// # Errors
/// The stream's own.
pub async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    writer.write_all(&line).await?;
    writer.flush().await
}
