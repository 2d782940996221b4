//! Has an engine that begins load the checkpoint that it should have, before the kubelet calls it started.
//!
//! What was seen is kept in a file that outlives engine and sidecar, and goes with the pod. A file that cannot be written or read costs the
//! memory and nothing else: that is in the log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use serde::Deserialize;
use sglang_client::{Backoff, Client, ClientOptions};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::engine::Engine;
use super::weights::{Checkpoint, Memory, Peers, Start, Told, Weights};

/// Between two looks at an engine that works.
const LOOK: Duration = Duration::from_secs(2);
/// For all peers together: the kubelet's probe waits ten seconds for everything.
const PEERS: Duration = Duration::from_secs(3);
/// Peers that are asked at once.
const AT_ONCE: usize = 16;
/// The file.
const FILE: &str = "weights.json";

/// Where and how checkpoints are kept in mind.
#[derive(Debug, Clone)]
pub(super) struct Keeping {
    /// Directory that outlives the engine's container; none: nothing is kept.
    pub(super) directory: Option<PathBuf>,
    /// `host:port` of the other sidecars of the pool.
    pub(super) peers: Option<String>,
    /// How long an engine may load.
    pub(super) limit: Duration,
    /// How long an engine that begins waits for peers that do not answer: those that are gone leave the name service, and the network of a Pod
    /// that is new may not be whole yet.
    pub(super) patience: Duration,
}

/// What keeps an engine's checkpoint.
#[derive(Debug)]
pub(super) struct Keeper {
    keeping: Keeping,
    memory: Mutex<Option<Memory>>,
    loading: Mutex<Loading>,
    /// Since when peers are waited for.
    waits: Mutex<Option<Instant>>,
    loads: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct Loading {
    /// The checkpoint that is being loaded.
    under_way: Option<String>,
    /// Why the last try failed; a further one does not change that before it has ended.
    failed: Option<String>,
}

/// What another sidecar says about itself.
#[derive(Deserialize)]
struct Peer {
    checkpoint: Option<Told>,
}

impl Keeper {
    pub(super) fn new(keeping: Keeping) -> Self {
        let memory = keeping.directory.as_deref().and_then(|directory| {
            read(directory).unwrap_or_else(|error| {
                tracing::warn!(%error, "what the engine had loaded cannot be read");
                None
            })
        });
        Self {
            keeping,
            memory: Mutex::new(memory),
            loading: Mutex::default(),
            waits: Mutex::default(),
            loads: Mutex::default(),
        }
    }

    /// The checkpoint that the engine has, or should have.
    pub(super) fn told(&self) -> Option<Told> {
        self.memory.lock().as_ref()?.told(now())
    }

    /// Why the engine may not work, when a person must act.
    pub(super) fn trouble(&self) -> Option<String> {
        self.loading.lock().failed.clone()
    }

    /// Takes note of what the engine has, as long as somebody waits for it.
    pub(super) async fn watch(&self, engine: &Engine) {
        if self.keeping.directory.is_none() {
            return std::future::pending().await;
        }
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let known = engine.known().await;
            if let Some(weights) = known.weights {
                self.note(&weights, known.paused.unwrap_or(false));
            }
        }
    }

    /// Whether an engine that begins may work; it is made to load what it should have.
    ///
    /// # Errors
    /// Why not yet.
    pub(super) async fn start(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<(), String> {
        if let Some(path) = &self.loading.lock().under_way {
            return Err(loads(path));
        }
        engine.health().await.map_err(|error| error.to_string())?;
        if self.keeping.directory.is_none() {
            return Ok(());
        }
        let asked = engine.weights();
        let (seen, peers) = tokio::join!(asked, self.peers());
        let seen = seen.map_err(|error| error.to_string())?;
        // An engine that begins is not paused.
        self.note(&seen, false);
        let start = match &*self.memory.lock() {
            Some(memory) => memory.start(&seen, &peers, now()),
            None => Start::Open,
        };
        match start {
            Start::Wait => Err(
                "the other engines of the pool have not said yet which checkpoint they have"
                    .to_owned(),
            ),
            Start::Open => {
                *self.waits.lock() = None;
                self.loading.lock().failed = None;
                Ok(())
            }
            Start::Load(checkpoint) => Err(self.begin(engine, checkpoint)),
        }
    }

    /// Begins to load; answers why the engine has to wait.
    fn begin(self: &Arc<Self>, engine: &Arc<Engine>, checkpoint: Checkpoint) -> String {
        let path = checkpoint.weights.path.clone();
        {
            let mut loading = self.loading.lock();
            if let Some(path) = &loading.under_way {
                return loads(path);
            }
            if loading.failed.is_none() {
                tracing::info!(path, version = ?checkpoint.weights.version, "the engine has begun without its checkpoint, and loads it");
            }
            loading.under_way = Some(path.clone());
        }
        self.remember(&checkpoint);
        let (keeper, engine) = (Arc::clone(self), Arc::clone(engine));
        let mut tasks = self.loads.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let limit = keeper.keeping.limit;
            let loaded = engine.load(&checkpoint.weights, limit).await;
            let path = &checkpoint.weights.path;
            let failed = loaded.err().map(|error| {
                format!("the engine has begun again and cannot load its checkpoint {path}: {error}")
            });
            let mut loading = keeper.loading.lock();
            if failed.is_some() && failed != loading.failed {
                tracing::warn!(failed, "the engine takes no work");
            }
            *loading = Loading {
                under_way: None,
                failed,
            };
        });
        loads(&path)
    }

    fn note(&self, seen: &Weights, paused: bool) {
        let mut memory = self.memory.lock();
        if let Some(after) = Memory::after(memory.as_ref(), seen, paused, now()) {
            if let Some(checkpoint) = &after.checkpoint {
                tracing::info!(path = checkpoint.weights.path, version = ?checkpoint.weights.version, "the engine has a checkpoint");
            }
            self.write(&after);
            *memory = Some(after);
        }
    }

    /// A checkpoint that may be a peer's is the engine's own from now on.
    fn remember(&self, checkpoint: &Checkpoint) {
        let mut memory = self.memory.lock();
        if let Some(memory) = &mut *memory
            && memory.checkpoint.as_ref() != Some(checkpoint)
        {
            memory.checkpoint = Some(checkpoint.clone());
            self.write(memory);
        }
    }

    fn write(&self, memory: &Memory) {
        let Some(directory) = &self.keeping.directory else {
            return;
        };
        if let Err(error) = write(directory, memory) {
            tracing::warn!(%error, "what the engine has loaded cannot be written down; an engine that starts again will not have it");
        }
    }

    /// What the sidecars of the pool's ready engines say. Those that do not answer are waited for, but not for ever.
    async fn peers(&self) -> Peers {
        let Some(name) = &self.keeping.peers else {
            return Peers::default();
        };
        let mut told = Vec::new();
        let asked = async {
            let addresses = match tokio::net::lookup_host(name.as_str()).await {
                Ok(addresses) => addresses,
                // The first engine of a pool has no peers: their name has no address.
                Err(error) => return !error.to_string().contains("emporary failure"),
            };
            let mut answers = stream::iter(addresses)
                .map(|address| ask(format!("http://{address}")))
                .buffer_unordered(AT_ONCE);
            let mut all = true;
            while let Some(answer) = answers.next().await {
                match answer {
                    Some(peer) => told.extend(peer.checkpoint),
                    None => all = false,
                }
            }
            all
        };
        let all = tokio::time::timeout(PEERS, asked).await.unwrap_or(false);
        Peers {
            told,
            awaited: !all && self.is_patient(),
        }
    }

    fn is_patient(&self) -> bool {
        let since = *self.waits.lock().get_or_insert_with(Instant::now);
        let is_patient = since.elapsed() < self.keeping.patience;
        if !is_patient {
            tracing::warn!(
                "not every other engine of the pool has said which checkpoint it has; this one begins without"
            );
        }
        is_patient
    }
}

async fn ask(url: String) -> Option<Peer> {
    let options = ClientOptions {
        connect: PEERS / 3,
        control: PEERS / 2,
        backoff: Backoff::none(),
        ..ClientOptions::default()
    };
    let client = Client::new(&url, options).ok()?;
    client.call(http::Method::GET, "/state", None).await.ok()
}

fn loads(path: &str) -> String {
    format!("the engine has begun again and loads its checkpoint {path}")
}

fn read(directory: &Path) -> io::Result<Option<Memory>> {
    match std::fs::read(directory.join(FILE)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whole or not at all.
fn write(directory: &Path, memory: &Memory) -> io::Result<()> {
    let file = tempfile::NamedTempFile::new_in(directory)?;
    serde_json::to_writer(&file, memory)?;
    file.as_file().sync_all()?;
    file.persist(directory.join(FILE))?;
    Ok(())
}

/// Seconds since 1970: the file outlives this process.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
