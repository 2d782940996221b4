//! A router that leaves while others stay in front of the same engines.
//!
//! ```text
//!   told to leave --> serves on, each answer closes its connection --> nothing in flight for a while, or time over --> stops
//! ```
//!
//! A client that keeps connections comes to another router with its next one. Caveat: sessions do not move; those of this router end with it.

use std::sync::atomic::{AtomicBool, Ordering};

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue};

/// Whether the router is leaving.
#[derive(Debug, Default)]
pub(crate) struct Leaving(AtomicBool);

impl Leaving {
    /// From now on.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets the client's connection end with this answer.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        if self.0.load(Ordering::Relaxed) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}
