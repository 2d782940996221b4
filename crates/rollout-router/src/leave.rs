//! A router that leaves while others stay in front of the same engines.
//!
//! ```text
//!   told to leave --> serves on, each answer closes its connection --> nothing in flight for a while, or time over --> stops
//! ```
//!
//! A client that keeps connections comes to another router with its next one. Caveat: sessions do not move; those of this router end with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use crate::router::Router;

/// Between two looks at what is in flight.
const LOOK: Duration = Duration::from_millis(100);

/// Whether the router is leaving.
#[derive(Debug, Default)]
pub(crate) struct Leaving(AtomicBool);

impl Leaving {
    /// Lets the client's connection end with this answer.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        if self.0.load(Ordering::Relaxed) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

impl Router {
    /// Serves on until nothing was in flight for `quiet`, or until `limit` is over. Whoever serves it stops it after that.
    ///
    /// `quiet` is how long others still send clients here: the list of a service's addresses takes a moment to reach everybody.
    pub async fn leave(&self, quiet: Duration, limit: Duration) {
        let inner = self.inner();
        inner.leaving.0.store(true, Ordering::Relaxed);
        let end = Instant::now() + limit;
        let mut quiet_since = Instant::now();
        while Instant::now() < end && quiet_since.elapsed() < quiet {
            tokio::time::sleep(LOOK.min(quiet)).await;
            if inner.flights.len() > 0 {
                quiet_since = Instant::now();
            }
        }
        tracing::info!(in_flight = inner.flights.len(), "left");
    }
}
