//! Objects that this version cannot read: an older or looser definition let them in, or another version wrote them (P10).
//!
//! Guarantees: one of them holds up no other; it is left as it is; people are told by an event, once per process and edit. Caveat: a status that
//! says so may be refused, since the API server types the whole object for it.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::error_boundary::InvalidObject;
use parking_lot::Mutex;

use super::events::Note;
use super::telling::Teller;
use crate::api::conditions::{reasons, types};

/// Generations that people were told of, by UID.
#[derive(Debug, Default)]
pub struct Unreadable(Mutex<HashMap<String, i64>>);

impl Unreadable {
    /// Tells of an object, unless that was done.
    pub fn tell(&self, teller: &Teller, object: &ObjectReference, why: &InvalidObject) {
        let uid = why.metadata.uid.clone().unwrap_or_default();
        let generation = why.metadata.generation.unwrap_or_default();
        if self.0.lock().insert(uid, generation) == Some(generation) {
            return;
        }
        let (name, error) = (object.name.as_deref().unwrap_or_default(), &why.error);
        tracing::warn!(name, %error, "an object cannot be read");
        let note = Note {
            warning: true,
            about: types::STALLED.to_owned(),
            reason: reasons::INVALID_SPEC.to_owned(),
            message: message(why),
        };
        teller.tell(object, &[note]);
    }

    /// An object is gone.
    pub fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

/// For people.
pub fn message(why: &InvalidObject) -> String {
    format!(
        "it cannot be read, and is left as it is until it is edited: {}",
        why.error
    )
}
