//! What a process remembers of what it sent, by the owner whose objects these are: it is forgotten with the owner.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::calls::Identity;
use super::decision::{Applied, Fingerprint};

/// By UID of the owner.
#[derive(Debug, Default)]
pub struct Memory(Mutex<HashMap<String, Objects>>);

#[derive(Debug, Default)]
struct Objects {
    /// By UID of the object.
    applied: HashMap<String, Applied>,
    /// Of objects that are never read.
    unread: HashMap<Identity, Unread>,
}

/// An object that was sent and is never read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Of what was sent.
    pub fingerprint: Fingerprint,
    /// UID of the object, from the answer.
    pub uid: Option<String>,
}

impl Memory {
    /// The last apply of an object.
    pub fn applied(&self, owner: &str, uid: &str) -> Option<Applied> {
        self.0.lock().get(owner)?.applied.get(uid).cloned()
    }

    /// Notes an apply of an object.
    pub fn note_applied(&self, owner: &str, uid: &str, applied: Applied) {
        let mut owners = self.0.lock();
        let objects = owners.entry(owner.to_owned()).or_default();
        objects.applied.insert(uid.to_owned(), applied);
    }

    /// What was sent last of an object that is never read.
    pub fn unread(&self, owner: &str, identity: &Identity) -> Option<Unread> {
        self.0.lock().get(owner)?.unread.get(identity).cloned()
    }

    /// Notes what was sent of an object that is never read.
    pub fn note_unread(&self, owner: &str, identity: Identity, unread: Unread) {
        let mut owners = self.0.lock();
        let objects = owners.entry(owner.to_owned()).or_default();
        objects.unread.insert(identity, unread);
    }

    /// An object that is never read was deleted.
    pub fn forget_unread(&self, owner: &str, identity: &Identity) {
        if let Some(objects) = self.0.lock().get_mut(owner) {
            objects.unread.remove(identity);
        }
    }

    /// An owner is gone.
    pub fn forget(&self, owner: &str) {
        self.0.lock().remove(owner);
    }
}
