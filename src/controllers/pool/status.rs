//! Writes a pool's status, when it changed: nothing in it moves by itself, so that a write is never its own cause (P18). The status has a field
//! manager of its own (P19).

use std::collections::HashMap;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Resource};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::meta::{self, field_managers};
use crate::api::pool::SGLangPool;
use crate::controllers::Error;
use crate::controllers::runtime::calls::{Calls, Effect};

/// Writes statuses, and remembers the last one of each pool: a cache that is behind our own write decides nothing (P12).
#[derive(Default)]
pub(super) struct StatusWriter {
    written: Mutex<HashMap<String, Written>>,
}

struct Written {
    status: Value,
    resource_version: Option<u64>,
}

/// Which pool a status is for.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: Option<String>,
}

/// Whether a status was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Written,
    Unchanged,
}

impl StatusWriter {
    /// The status that the next one is made from: the cache's, or our own last one while the cache is behind it.
    pub(super) fn base(&self, target: &Target, cached: Value) -> Value {
        let version = number(target.resource_version.as_deref());
        let written = self.written.lock();
        match written.get(&target.uid) {
            Some(written) if version < written.resource_version => written.status.clone(),
            _ => cached,
        }
    }

    pub(super) async fn write(
        &self,
        calls: &Calls,
        target: &Target,
        base: &Value,
        status: Value,
    ) -> Result<Change, Error> {
        if same(base, &status) {
            return Ok(Change::Unchanged);
        }
        let resource = ApiResource::erase::<SGLangPool>(&());
        let api: Api<DynamicObject> =
            Api::namespaced_with(calls.client().clone(), &target.namespace, &resource);
        // With the UID, so that it never lands on another pool of that name.
        let patch = json!({
            "apiVersion": meta::API_VERSION,
            "kind": meta::POOL_KIND,
            "metadata": {"name": target.name, "namespace": target.namespace, "uid": target.uid},
            "status": status,
        });
        let params = PatchParams::apply(field_managers::POOL_STATUS).force();
        let patch = Patch::Apply(patch);
        let object = format!(
            "the status of {} {}/{}",
            meta::POOL_KIND,
            target.namespace,
            target.name
        );
        let answer = calls
            .call(
                Effect::Write,
                "write",
                &object,
                api.patch_status(&target.name, &params, &patch),
            )
            .await?;
        let written = Written {
            status,
            resource_version: number(answer.meta().resource_version.as_deref()),
        };
        self.written.lock().insert(target.uid.clone(), written);
        Ok(Change::Written)
    }

    pub(super) fn forget(&self, uid: &str) {
        self.written.lock().remove(uid);
    }
}

/// Null and absent are the same to the API server.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let names = left.keys().chain(right.keys());
            names.into_iter().all(|name| {
                let none = Value::Null;
                same(
                    left.get(name).unwrap_or(&none),
                    right.get(name).unwrap_or(&none),
                )
            })
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same(left, right))
        }
        _ => left == right,
    }
}

fn number(version: Option<&str>) -> Option<u64> {
    version?.parse().ok()
}
