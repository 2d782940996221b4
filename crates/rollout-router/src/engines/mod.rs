//! The engines of the pool: which there are, how they are, which one is next.

mod client;
mod connection;
mod health;
mod line;
mod probe;
mod silence;

pub(crate) use client::{SendError, Upstream, read_reply};
pub(crate) use line::Line;
pub(crate) use probe::run as run_probes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use health::Health;

/// Abort calls that one engine gets at the same time.
const ABORTS_AT_ONCE: usize = 16;

/// An engine URL that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineUrlError {
    /// Not a URL.
    #[error("engine URL {url}: {problem}")]
    Invalid {
        /// As it was given.
        url: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// There is none.
    #[error("no engine URL was given")]
    None,
}

/// Says what a router would say of its engines' addresses, without starting one.
///
/// # Errors
/// There is none, one cannot be used, or one is given twice.
pub fn check_engine_urls(urls: &[String]) -> Result<(), EngineUrlError> {
    Engines::new(urls).map(drop)
}

/// One engine.
#[derive(Debug)]
pub(crate) struct Engine {
    url: String,
    authority: Authority,
    host: HeaderValue,
    in_flight: AtomicUsize,
    seats: AtomicUsize,
    health: Mutex<Health>,
    weight_version: RwLock<Option<String>>,
    aborts: Semaphore,
    known_since: Instant,
    /// Microseconds from then until it was heard of last.
    heard_micros: AtomicU64,
    /// Cuts the lines of all requests that it has now.
    lines: Mutex<CancellationToken>,
}

impl Engine {
    fn new(url: &str) -> Result<Self, EngineUrlError> {
        let invalid = |problem| EngineUrlError::Invalid {
            url: url.to_owned(),
            problem,
        };
        let uri: Uri = url.parse().map_err(|_| invalid("is not a URL"))?;
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => {}
            Some(scheme) if *scheme == Scheme::HTTPS => {
                return Err(invalid(
                    "https is not supported: engines are reached by plain HTTP within the pool's network; put a proxy that speaks http in front of this one",
                ));
            }
            _ => return Err(invalid("does not start with http://")),
        }
        if uri
            .path_and_query()
            .is_some_and(|path| path.as_str() != "/")
        {
            return Err(invalid("has a path: give the address only"));
        }
        let authority = uri
            .authority()
            .cloned()
            .ok_or_else(|| invalid("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(invalid("carries a user name: use the engine key setting"));
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| invalid("has no host"))?;
        Ok(Self {
            url: format!("http://{authority}"),
            authority,
            host,
            in_flight: AtomicUsize::new(0),
            seats: AtomicUsize::new(0),
            health: Mutex::new(Health::default()),
            weight_version: RwLock::new(None),
            aborts: Semaphore::new(ABORTS_AT_ONCE),
            known_since: Instant::now(),
            heard_micros: AtomicU64::new(0),
            lines: Mutex::default(),
        })
    }

    /// Its base URL, without a slash at the end.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL of one of its routes.
    pub(crate) fn uri(&self, path: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).unwrap_or_default()
    }

    pub(crate) fn host(&self) -> HeaderValue {
        self.host.clone()
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.health.lock().is_up()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Sessions that have their place here.
    pub(crate) fn sessions(&self) -> usize {
        self.seats.load(Ordering::Relaxed)
    }

    pub(crate) fn weight_version(&self) -> Option<String> {
        self.weight_version.read().clone()
    }

    /// Remembers what a reply said about the weights.
    pub(crate) fn note_weight_version(&self, version: &str) {
        if self.weight_version.read().as_deref() != Some(version) {
            *self.weight_version.write() = Some(version.to_owned());
        }
    }

    /// It answered. Returns whether that changed its standing.
    pub(crate) fn note_success(&self) -> bool {
        self.health.lock().success()
    }

    /// It could not be reached, or said that it does not serve. Returns whether that changed its standing.
    pub(crate) fn note_failure(&self) -> bool {
        self.health.lock().failure()
    }

    /// A sign of life.
    pub(crate) fn note_heard(&self) {
        let micros = u64::try_from(self.known_since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.heard_micros.fetch_max(micros, Ordering::Relaxed);
    }

    /// When it was heard of last.
    fn heard(&self) -> Instant {
        self.known_since + Duration::from_micros(self.heard_micros.load(Ordering::Relaxed))
    }

    /// Takes it out at once and ends the requests that it has. It comes back by its probes, like any other engine.
    fn give_up(&self) {
        self.health.lock().take_out();
        std::mem::take(&mut *self.lines.lock()).cancel();
    }

    pub(crate) fn abort_permits(&self) -> &Semaphore {
        &self.aborts
    }
}

/// Counts one request of an engine as outstanding.
#[derive(Debug)]
pub(crate) struct Outstanding(Arc<Engine>);

impl Outstanding {
    pub(crate) fn at(engine: &Arc<Engine>) -> Self {
        engine.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(engine))
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A session's place at an engine, for the prefix cache's sake.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Engine>);

impl Seat {
    pub(crate) fn at(engine: &Arc<Engine>) -> Self {
        engine.seats.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(engine))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.seats.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The engines of the pool.
#[derive(Debug)]
pub(crate) struct Engines {
    engines: Vec<Arc<Engine>>,
    turn: AtomicUsize,
}

impl Engines {
    pub(crate) fn new(urls: &[String]) -> Result<Self, EngineUrlError> {
        if urls.is_empty() {
            return Err(EngineUrlError::None);
        }
        let mut engines: Vec<Arc<Engine>> = Vec::with_capacity(urls.len());
        for url in urls {
            let engine = Engine::new(url)?;
            if engines.iter().any(|other| other.url == engine.url) {
                return Err(EngineUrlError::Invalid {
                    url: url.clone(),
                    problem: "is given twice",
                });
            }
            engines.push(Arc::new(engine));
        }
        Ok(Self {
            engines,
            turn: AtomicUsize::new(0),
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Engine>> {
        self.engines.iter()
    }

    /// The healthy engine with the least outstanding work, of equals the one with the fewest sessions, of those in turn; none of
    /// `tried`. When all seem to be broken, one of them is tried all the same: it is the request that finds out.
    pub(crate) fn pick(&self, tried: &[Arc<Engine>]) -> Option<Arc<Engine>> {
        let count = self.engines.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        (0..count)
            .map(|step| &self.engines[(first + step) % count])
            .filter(|engine| !tried.iter().any(|other| Arc::ptr_eq(other, engine)))
            .min_by_key(|engine| (!engine.is_healthy(), engine.in_flight(), engine.sessions()))
            .cloned()
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.url)
    }
}
