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
struct Shelves {
    live: HashMap<HexId, Arc<Session>>,
    by_key: HashMap<(Option<Arc<str>>, String), HexId>,
    deleted: HashMap<HexId, Instant>,
}

/// The store.
#[derive(Debug)]
pub(crate) struct Sessions {
    shelves: Mutex<Shelves>,
    bytes: AtomicUsize,
    limits: Limits,
    /// A session has ended or was deleted.
    pub(crate) ended: Notify,
}

impl Sessions {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            shelves: Mutex::default(),
            bytes: AtomicUsize::new(0),
            limits,
            ended: Notify::new(),
        }
    }

    /// Adds a session, or answers the one that was created with the same idempotency key. The flag says whether it is new.
    pub(crate) fn insert(&self, session: Session) -> Result<(Arc<Session>, bool), ApiError> {
        let mut shelves = self.shelves.lock();
        let key = session
            .spec
            .idempotency_key
            .clone()
            .map(|key| (session.spec.job.clone(), key));
        if let Some(key) = &key
            && let Some(known) = shelves.by_key.get(key)
            && let Some(known) = shelves.live.get(known)
        {
            return Ok((Arc::clone(known), false));
        }
        if shelves.live.len() >= self.limits.sessions {
            return Err(ApiError::TooMany(format!(
                "there are {} sessions, the limit: delete those that have ended",
                shelves.live.len()
            )));
        }
        let session = Arc::new(session);
        if let Some(key) = key {
            shelves.by_key.insert(key, session.id);
        }
        shelves.live.insert(session.id, Arc::clone(&session));
        Ok((session, true))
    }

    pub(crate) fn get(&self, id: HexId) -> Result<Arc<Session>, ApiError> {
        let found = self.shelves.lock().live.get(&id).cloned();
        found.ok_or_else(|| ApiError::SessionNotFound(id.as_str().to_owned()))
    }

    /// Takes a session out. `None` when it was taken out before.
    pub(crate) fn remove(&self, id: HexId, now: Instant) -> Result<Option<Arc<Session>>, ApiError> {
        let mut shelves = self.shelves.lock();
        if let Some(session) = shelves.live.remove(&id) {
            if let Some(key) = &session.spec.idempotency_key {
                let key = (session.spec.job.clone(), key.clone());
                shelves.by_key.remove(&key);
            }
            shelves.deleted.insert(id, now);
            drop(shelves);
            self.ended.notify_waiters();
            return Ok(Some(session));
        }
        if shelves.deleted.contains_key(&id) {
            return Ok(None);
        }
        Err(ApiError::SessionNotFound(id.as_str().to_owned()))
    }

    /// Forgets old deletions.
    pub(crate) fn forget_deleted(&self, now: Instant, after: Duration) {
        let mut shelves = self.shelves.lock();
        shelves
            .deleted
            .retain(|_, at| now.saturating_duration_since(*at) <= after);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.shelves.lock().live.values().cloned().collect()
    }

    /// Bytes of all records.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A session's records had `before` bytes and have `after`.
    pub(crate) fn resize(&self, before: usize, after: usize) {
        self.bytes
            .fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
}
