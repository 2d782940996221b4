//! The driver's side of the plug-in host: calls of the user's Python functions (docs/protocol.md section 4).
//!
//! **Purpose.** [`PluginClient::call`] runs one function in the host and returns what it returned.
//!
//! **Guarantees.** Every call has a deadline, counted from when it has a connection; the number of calls at once is bounded, and the
//! rest wait. A call that is dropped or late is cancelled in the host, by closing its connection. A host that is not up yet, or that is started
//! again, is waited for until the deadline. A host that ends in the middle of a call gets that call once more: plug-in calls are asked to be
//! repeatable, and one that ends the host twice is an error instead of a loop.

mod answer;
mod connection;
mod error;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rollout_session::Sample;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

pub use error::PluginError;

use connection::{Connection, MAX_LINE_BYTES};

/// How often a call is sent when the host ends in the middle of it.
const MAX_SENDS: u32 = 2;
const PING: &[u8] = b"{\"id\": 0, \"call\": \"ping\"}\n";
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A call of the host.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum PluginCall<'a> {
    /// Imports a function; answers its signature.
    Load {
        /// Path of the function, `module.function`.
        path: &'a str,
    },
    /// Scores samples.
    Reward {
        /// Path of the function.
        path: &'a str,
        /// The job's parameters.
        args: &'a Value,
        /// What to score.
        samples: &'a [Sample],
        /// One call with the list, instead of one call per sample.
        batch: bool,
    },
    /// Decides about a group.
    Filter {
        /// Path of the function.
        path: &'a str,
        /// The job's parameters.
        args: &'a Value,
        /// The group.
        samples: &'a [Sample],
    },
}

impl PluginCall<'_> {
    fn path(&self) -> &str {
        match self {
            Self::Load { path } | Self::Reward { path, .. } | Self::Filter { path, .. } => path,
        }
    }
}

#[derive(Serialize)]
struct Request<'a> {
    id: u64,
    #[serde(flatten)]
    call: PluginCall<'a>,
}

/// A pool of connections to one plug-in host.
#[derive(Debug)]
pub struct PluginClient {
    socket: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
    next_id: AtomicU64,
}

impl PluginClient {
    /// A client of the host that listens, or will listen, on `socket`. At most `concurrency` calls run at once (at least one).
    pub fn new(socket: impl Into<PathBuf>, concurrency: usize) -> Self {
        Self {
            socket: socket.into(),
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(concurrency.max(1)),
            next_id: AtomicU64::new(1),
        }
    }

    /// Runs one call and returns the function's result.
    ///
    /// # Errors
    /// The function raised, the host cannot be reached, ended, answered something else, or was late.
    pub async fn call(&self, call: PluginCall<'_>, limit: Duration) -> Result<Value, PluginError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let line = encode(id, call)?;
        let _permit = self.permits.acquire().await;
        let deadline = Instant::now() + limit;
        let mut outage = None;
        match timeout_at(deadline, self.send(&line, id, call.path(), &mut outage)).await {
            Ok(result) => result,
            Err(_) => Err(match outage {
                Some(source) => PluginError::Unreachable {
                    function: call.path().to_owned(),
                    socket: self.socket.clone(),
                    limit,
                    source,
                },
                None => PluginError::TimedOut {
                    function: call.path().to_owned(),
                    limit,
                },
            }),
        }
    }

    async fn send(
        &self,
        line: &[u8],
        id: u64,
        function: &str,
        outage: &mut Option<io::Error>,
    ) -> Result<Value, PluginError> {
        let mut sends = 0;
        loop {
            let reused = self.idle.lock().pop();
            let was_reused = reused.is_some();
            let mut connection = match reused {
                Some(connection) => connection,
                None if sends == 0 => self.connect(outage).await,
                None => self.connect_alive(outage).await,
            };
            match connection.exchange(line).await {
                Ok(answer) => {
                    let result = answer::result_of(&answer, id, function);
                    if !matches!(result, Err(PluginError::Protocol { .. })) {
                        self.idle.lock().push(connection);
                    }
                    return result;
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let problem = format!("a line longer than {MAX_LINE_BYTES} bytes");
                    return Err(PluginError::Protocol {
                        function: function.to_owned(),
                        problem,
                    });
                }
                // The host may have ended long ago: that was not this call.
                Err(_) if was_reused => {}
                Err(_) => {
                    sends += 1;
                    if sends == MAX_SENDS {
                        return Err(PluginError::Lost {
                            function: function.to_owned(),
                            calls: sends,
                        });
                    }
                }
            }
        }
    }

    /// Connects as soon as somebody listens; the caller's deadline ends it.
    async fn connect(&self, outage: &mut Option<io::Error>) -> Connection {
        let mut pause = FIRST_PAUSE;
        loop {
            match Connection::open(&self.socket).await {
                Ok(connection) => {
                    *outage = None;
                    return connection;
                }
                Err(error) => *outage = Some(error),
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Connects to a host that answers: one that is about to end may still accept connections.
    async fn connect_alive(&self, outage: &mut Option<io::Error>) -> Connection {
        loop {
            let mut connection = self.connect(outage).await;
            match connection.exchange(PING).await {
                Ok(_) => return connection,
                Err(error) => *outage = Some(error),
            }
            sleep(FIRST_PAUSE).await;
        }
    }
}

fn encode(id: u64, call: PluginCall<'_>) -> Result<Vec<u8>, PluginError> {
    let function = || call.path().to_owned();
    let mut line =
        serde_json::to_vec(&Request { id, call }).map_err(|error| PluginError::Protocol {
            function: function(),
            problem: format!("nothing: {error}"),
        })?;
    if line.len() > MAX_LINE_BYTES {
        return Err(PluginError::TooLarge {
            function: function(),
            bytes: line.len(),
            limit: MAX_LINE_BYTES,
        });
    }
    line.push(b'\n');
    Ok(line)
}
