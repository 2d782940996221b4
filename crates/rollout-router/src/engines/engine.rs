//! One engine: where it is, how it is, what it has to do.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::EngineUrlError;
use super::health::Health;
use super::state::Told;
use crate::id::HexId;

/// Abort calls that one engine gets at the same time.
const ABORTS_AT_ONCE: usize = 16;

/// How the router came to know an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// By its URL: it stays until somebody takes it away.
    Given,
    /// By the name of a service: it leaves with its address.
    Found,
}

/// One engine.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The same at every router that knows its address.
    id: HexId,
    url: String,
    origin: Origin,
    /// It has left the service: it gets nothing new.
    left: AtomicBool,
    /// What its sidecar says.
    told: Told,
    scheme: Scheme,
    authority: Authority,
    host: HeaderValue,
    in_flight: AtomicUsize,
    seats: AtomicUsize,
    health: Mutex<Health>,
    /// Why its last probe was not answered.
    problem: Mutex<Option<String>>,
    weight_version: RwLock<Option<String>>,
    /// A stream of it could not be recorded.
    streams_badly: AtomicBool,
    aborts: Semaphore,
    known_since: Instant,
    /// Microseconds from then until it was heard of last.
    heard_micros: AtomicU64,
    /// Cuts the lines of all requests that it has now.
    lines: Mutex<CancellationToken>,
}

impl Engine {
    pub(super) fn new(url: &str, origin: Origin) -> Result<Self, EngineUrlError> {
        let invalid = |problem| EngineUrlError::Invalid {
            url: without_credentials(url),
            problem,
        };
        let uri: Uri = url.parse().map_err(|_| invalid("is not a URL"))?;
        let scheme = uri.scheme().cloned();
        let scheme = scheme
            .filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme))
            .ok_or_else(|| invalid("does not start with http:// or https://"))?;
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
        let url = format!("{scheme}://{authority}");
        Ok(Self {
            id: HexId::of_text(&url),
            url,
            scheme,
            origin,
            left: AtomicBool::new(false),
            told: Told::default(),
            authority,
            host,
            in_flight: AtomicUsize::new(0),
            seats: AtomicUsize::new(0),
            health: Mutex::new(Health::default()),
            problem: Mutex::default(),
            weight_version: RwLock::new(None),
            streams_badly: AtomicBool::new(false),
            aborts: Semaphore::new(ABORTS_AT_ONCE),
            known_since: Instant::now(),
            heard_micros: AtomicU64::new(0),
            lines: Mutex::default(),
        })
    }

    /// What it is called besides its address.
    pub(crate) fn id(&self) -> HexId {
        self.id
    }

    /// Its base URL, without a slash at the end.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL of one of its routes.
    pub(crate) fn uri(&self, path: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// The URL of a server on the same host.
    pub(super) fn beside(&self, port: u16, path: PathAndQuery) -> Uri {
        let host = self.authority.host();
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = format!("{host}:{port}").parse().ok();
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).unwrap_or_default()
    }

    pub(crate) fn host(&self) -> HeaderValue {
        self.host.clone()
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.health.lock().is_up()
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// It gets nothing new: it has left the service, or its sidecar says that it is about to.
    pub(crate) fn is_draining(&self) -> bool {
        self.has_left() || self.told.is_draining()
    }

    /// It has left the service.
    pub(super) fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    /// Returns whether that is news.
    pub(super) fn set_left(&self, left: bool) -> bool {
        self.left.swap(left, Ordering::SeqCst) != left
    }

    /// What it is sent waits until somebody lets it go on.
    pub(crate) fn is_paused(&self) -> bool {
        self.told.is_paused()
    }

    pub(super) fn told(&self) -> &Told {
        &self.told
    }

    /// Whether work should come here.
    pub(crate) fn serves(&self) -> bool {
        self.is_healthy() && !self.is_draining()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::SeqCst)
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

    /// Whether a turn may be streamed: no stream of it was incomplete so far.
    pub(crate) fn is_trusted_to_stream(&self) -> bool {
        !self.streams_badly.load(Ordering::Relaxed)
    }

    /// A stream of it could not be recorded: its answers are asked for in one piece from now on.
    pub(crate) fn distrust_streams(&self) {
        self.streams_badly.store(true, Ordering::Relaxed);
    }

    /// It answered. Returns whether that changed its standing.
    pub(crate) fn note_success(&self) -> bool {
        self.health.lock().success()
    }

    /// It could not be reached, or said that it does not serve. Returns whether that changed its standing.
    pub(crate) fn note_failure(&self) -> bool {
        self.health.lock().failure()
    }

    /// What became of its last probe.
    pub(super) fn note_problem(&self, problem: Option<String>) {
        *self.problem.lock() = problem;
    }

    /// Why its last probe was not answered.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// A sign of life.
    pub(crate) fn note_heard(&self) {
        let micros = u64::try_from(self.known_since.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.heard_micros.fetch_max(micros, Ordering::Relaxed);
    }

    /// When it was heard of last.
    pub(super) fn heard(&self) -> Instant {
        self.known_since + Duration::from_micros(self.heard_micros.load(Ordering::Relaxed))
    }

    /// Takes it out at once and ends the requests that it has. It comes back by its probes, like any other engine.
    pub(super) fn give_up(&self) {
        self.health.lock().take_out();
        std::mem::take(&mut *self.lines.lock()).cancel();
    }

    /// What is cut when it is given up from now on.
    pub(super) fn lines(&self) -> CancellationToken {
        self.lines.lock().clone()
    }

    pub(crate) fn abort_permits(&self) -> &Semaphore {
        &self.aborts
    }
}

/// One request that an engine has, or is about to get.
#[derive(Debug)]
pub(crate) struct Outstanding(Arc<Engine>);

impl Outstanding {
    /// Counts a request that is about to be sent; `None` when the engine has left.
    ///
    /// Whoever forgets an engine first says that it leaves and then looks at the count; here it is the other way round. So either the
    /// count is seen, or the leaving is: nothing is sent to an engine that is forgotten.
    pub(crate) fn at(engine: &Arc<Engine>) -> Option<Self> {
        engine.in_flight.fetch_add(1, Ordering::SeqCst);
        let counted = Self(Arc::clone(engine));
        (!engine.is_draining()).then_some(counted)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
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

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.url)
    }
}

/// An address for a message: a password that does not belong into it stays out of logs.
fn without_credentials(url: &str) -> String {
    let Some((before, host)) = url.rsplit_once('@') else {
        return url.to_owned();
    };
    let scheme = before.split_once("//").map_or("", |(scheme, _)| scheme);
    format!("{scheme}//...@{host}")
}

#[cfg(test)]
mod tests {
    use super::{Engine, Origin};

    #[test]
    fn a_password_in_an_address_is_refused_and_not_repeated() {
        for (url, shown) in [
            ("http://me:secret@host:1", "http://...@host:1"),
            ("https://me:secret@host:1", "https://...@host:1"),
            ("me:secret@host", "//...@host"),
        ] {
            let error = Engine::new(url, Origin::Given).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("engine URL {shown}: ")),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
