//! All sessions of this process by id.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Session;
use crate::config::Limits;
use crate::error::ApiError;
use crate::id::HexId;

#[derive(Debug, Default)]
struct Shelf {
    live: HashMap<HexId, Arc<Session>>,
    by_key: HashMap<(Option<Arc<str>>, String), HexId>,
    deleted: HashMap<HexId, Instant>,
}

/// The store.
#[derive(Debug)]
pub(crate) struct Sessions {
    shelf: Mutex<Shelf>,
    bytes: AtomicUsize,
    limits: Limits,
    /// A session has ended or was deleted.
    pub(crate) ended: Notify,
}

impl Sessions {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            shelf: Mutex::default(),
            bytes: AtomicUsize::new(0),
            limits,
            ended: Notify::new(),
        }
    }

    /// Adds a session, or answers the one that was created with the same idempotency key. The flag says whether it is new.
    pub(crate) fn insert(&self, session: Session) -> Result<(Arc<Session>, bool), ApiError> {
        let mut shelf = self.shelf.lock();
        let key = session
            .spec
            .idempotency_key
            .clone()
            .map(|key| (session.spec.job.clone(), key));
        if let Some(key) = &key
            && let Some(known) = shelf.by_key.get(key)
            && let Some(known) = shelf.live.get(known)
        {
            return Ok((Arc::clone(known), false));
        }
        if shelf.live.len() >= self.limits.sessions {
            return Err(ApiError::TooMany(format!(
                "there are {} sessions, the limit: delete those that have ended",
                shelf.live.len()
            )));
        }
        let session = Arc::new(session);
        if let Some(key) = key {
            shelf.by_key.insert(key, session.id);
        }
        shelf.live.insert(session.id, Arc::clone(&session));
        Ok((session, true))
    }

    pub(crate) fn get(&self, id: HexId) -> Result<Arc<Session>, ApiError> {
        let found = self.shelf.lock().live.get(&id).cloned();
        found.ok_or_else(|| ApiError::SessionNotFound(id.to_string()))
    }

    /// Takes a session out. `None` when it was taken out before.
    pub(crate) fn remove(&self, id: HexId, now: Instant) -> Result<Option<Arc<Session>>, ApiError> {
        let mut shelf = self.shelf.lock();
        if let Some(session) = shelf.live.remove(&id) {
            if let Some(key) = &session.spec.idempotency_key {
                let key = (session.spec.job.clone(), key.clone());
                shelf.by_key.remove(&key);
            }
            shelf.deleted.insert(id, now);
            drop(shelf);
            self.ended.notify_waiters();
            return Ok(Some(session));
        }
        if shelf.deleted.contains_key(&id) {
            return Ok(None);
        }
        Err(ApiError::SessionNotFound(id.to_string()))
    }

    /// Forgets old deletions.
    pub(crate) fn forget_deleted(&self, now: Instant, after: Duration) {
        let mut shelf = self.shelf.lock();
        shelf
            .deleted
            .retain(|_, at| now.saturating_duration_since(*at) <= after);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.shelf.lock().live.values().cloned().collect()
    }

    /// Bytes of all records.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release_bytes(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
}
