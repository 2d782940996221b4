//! What the process still waits for, so that `/readyz` can name it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What is missing. Empty: ready.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<BTreeMap<String, String>>>);

impl Health {
    /// Something is missing, and why.
    pub fn missing(&self, what: &str, why: impl Into<String>) {
        self.0.lock().insert(what.to_owned(), why.into());
    }

    /// It is there.
    pub fn found(&self, what: &str) {
        self.0.lock().remove(what);
    }

    /// Lines of `what: why`; none when nothing is missing.
    pub fn report(&self) -> Vec<String> {
        let missing = self.0.lock();
        missing
            .iter()
            .map(|(what, why)| format!("{what}: {why}"))
            .collect()
    }
}
