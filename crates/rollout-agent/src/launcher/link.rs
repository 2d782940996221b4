//! The connection to the shim: one at a time, sessions and hooks by id.
//!
//! What was started always ends: a shim that is lost ends its sessions as infrastructure failures and its hooks as failed.

use std::{collections::HashMap, io, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    socket,
    wire::{
        self, Abort, AbortDone, AgentKind, Cancel, Ended, FromLauncher, FromShim, HookResult,
        LoadFailure, Start,
    },
};

/// How long a new connection may take to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the shim may take to read what it is told.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether sessions can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShimState {
    /// No shim is connected.
    Absent,
    /// The agent is being loaded.
    Loading,
    /// Sessions may start. A function has been loaded then; a command shows what it is when it is started.
    Ready(AgentKind),
    /// The agent cannot be loaded.
    Failed(LoadFailure),
}

/// The shim, as sessions see it. Clones are the same link.
#[derive(Debug, Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: watch::Sender<ShimState>,
    stopping: CancellationToken,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    outbox: Option<mpsc::UnboundedSender<FromLauncher>>,
    sessions: HashMap<String, oneshot::Sender<Ended>>,
    hooks: HashMap<String, oneshot::Sender<AbortDone>>,
}

impl Link {
    /// Listens in `directory`. `stopping` is cancelled when the shim says that it was told to terminate.
    pub(super) fn listen(
        directory: &Path,
        stopping: CancellationToken,
    ) -> io::Result<(Self, UnixListener)> {
        let listener = socket::listen(directory)?;
        let (state, _) = watch::channel(ShimState::Absent);
        let shared = Arc::new(Shared {
            state,
            stopping,
            inner: Mutex::default(),
        });
        Ok((Self { shared }, listener))
    }

    /// Accepts shims until it is dropped.
    pub(super) async fn accept(self, listener: UnixListener) {
        let mut connection = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if connection.is_empty() => {
                        connection.spawn(self.clone().serve(stream));
                    }
                    Ok(_) => tracing::debug!("a second connection was closed: there is a shim already"),
                    Err(error) => {
                        tracing::warn!(%error, "a connection of the shim failed");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = connection.join_next(), if !connection.is_empty() => {}
            }
        }
    }

    /// The shim's state, to wait on.
    pub(super) fn state(&self) -> watch::Receiver<ShimState> {
        self.shared.state.subscribe()
    }

    /// Starts a session. The receiver gives its end.
    pub(super) fn start(&self, start: Start) -> oneshot::Receiver<Ended> {
        let (sender, receiver) = oneshot::channel();
        let session_id = start.session_id.clone();
        let mut inner = self.shared.inner.lock();
        if inner.send(FromLauncher::Start(Box::new(start))) {
            inner.sessions.insert(session_id, sender);
        } else {
            let _ = sender.send(Ended::infra(
                &session_id,
                "the agent's container is not connected",
            ));
        }
        receiver
    }

    /// Tells the shim that a session is aborted.
    pub(super) fn terminate(&self, session_id: &str) {
        let session_id = session_id.to_owned();
        self.shared
            .inner
            .lock()
            .send(FromLauncher::Terminate { session_id });
    }

    /// Tells the shim to end a session.
    pub(super) fn cancel(&self, session_id: &str, grace: Duration) {
        let cancel = Cancel {
            session_id: session_id.to_owned(),
            grace_seconds: grace.as_secs_f64(),
        };
        self.shared.inner.lock().send(FromLauncher::Cancel(cancel));
    }

    /// Forgets a session that was given up.
    pub(super) fn forget(&self, session_id: &str) {
        self.shared.inner.lock().sessions.remove(session_id);
    }

    /// Runs the hook. The receiver gives its report.
    pub(super) fn abort(&self, abort: Abort) -> oneshot::Receiver<AbortDone> {
        let (sender, receiver) = oneshot::channel();
        let abort_id = abort.abort_id.clone();
        let mut inner = self.shared.inner.lock();
        if inner.send(FromLauncher::Abort(abort)) {
            inner.hooks.insert(abort_id, sender);
        } else {
            let _ = sender.send(lost_hook(abort_id));
        }
        receiver
    }

    /// Tells the shim to end, and waits until it has.
    pub(super) async fn exit(&self, patience: Duration) {
        self.shared.inner.lock().send(FromLauncher::Exit);
        let mut state = self.state();
        if timeout(
            patience,
            state.wait_for(|state| *state == ShimState::Absent),
        )
        .await
        .is_err()
        {
            tracing::warn!("the shim did not end when it was told to");
        }
    }

    async fn serve(self, stream: UnixStream) {
        let (read, mut write) = stream.into_split();
        let mut reader = BufReader::new(read);
        let hello = timeout(HELLO_TIMEOUT, wire::read::<FromShim>(&mut reader)).await;
        let Ok(Ok(Some(FromShim::Hello { kind, pid }))) = hello else {
            tracing::warn!("a connection to the launcher did not say hello");
            return;
        };
        tracing::info!(?kind, pid, "the shim is connected");
        let (outbox, mut inbox) = mpsc::unbounded_channel::<FromLauncher>();
        self.shared.inner.lock().outbox = Some(outbox);
        self.shared.state.send_replace(ShimState::Loading);
        let writing = async {
            while let Some(lines) = wire::next_burst(&mut inbox).await {
                match timeout(WRITE_TIMEOUT, write.write_all(&lines)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        return tracing::warn!(%error, "the shim cannot be told anything");
                    }
                    Err(_) => return tracing::warn!("the shim does not read what it is told"),
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = self.read(&mut reader, kind) => {}
        }
        self.lost();
    }

    async fn read(&self, reader: &mut BufReader<tokio::net::unix::OwnedReadHalf>, kind: AgentKind) {
        loop {
            match wire::read::<FromShim>(reader).await {
                Ok(Some(message)) => self.on_message(message, kind),
                Ok(None) => return,
                Err(error) => return tracing::warn!(%error, "the shim's connection broke"),
            }
        }
    }

    fn on_message(&self, message: FromShim, kind: AgentKind) {
        match message {
            FromShim::Ready => {
                self.shared.state.send_replace(ShimState::Ready(kind));
            }
            FromShim::Failed { error, fault } => {
                let failure = LoadFailure { error, fault };
                self.shared.state.send_replace(ShimState::Failed(failure));
            }
            FromShim::Ended(ended) => {
                let sender = self.shared.inner.lock().sessions.remove(&ended.session_id);
                if let Some(sender) = sender {
                    let _ = sender.send(*ended);
                }
            }
            FromShim::AbortDone(done) => {
                let sender = self.shared.inner.lock().hooks.remove(&done.abort_id);
                if let Some(sender) = sender {
                    let _ = sender.send(done);
                }
            }
            FromShim::Stopping => self.shared.stopping.cancel(),
            FromShim::Hello { .. } | FromShim::Stuck { .. } | FromShim::Unknown => {
                tracing::debug!(?message, "a message of the shim was ignored");
            }
        }
    }

    fn lost(&self) {
        let inner = std::mem::take(&mut *self.shared.inner.lock());
        self.shared.state.send_replace(ShimState::Absent);
        for (session_id, sender) in inner.sessions {
            let _ = sender.send(Ended::lost(&session_id));
        }
        for (abort_id, sender) in inner.hooks {
            let _ = sender.send(lost_hook(abort_id));
        }
    }
}

fn lost_hook(abort_id: String) -> AbortDone {
    let error = Some("the agent's container was lost".to_owned());
    AbortDone {
        abort_id,
        result: HookResult::Failed,
        error,
    }
}

impl Inner {
    fn send(&self, message: FromLauncher) -> bool {
        self.outbox
            .as_ref()
            .is_some_and(|outbox| outbox.send(message).is_ok())
    }
}
