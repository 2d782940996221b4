//! The pool or the job that objects are made for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::meta;

/// Who an object is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `SGLangPool` or `RolloutJob`.
    pub kind: &'static str,
    /// Its namespace, which is that of everything made for it.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its labels; those of Kueue are passed on.
    pub labels: BTreeMap<String, String>,
}

impl Owner {
    /// The owner reference of what goes with it.
    pub(super) fn reference(&self) -> Value {
        json!({
            "apiVersion": meta::API_VERSION,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}
