//! Writes a job's status: when it changed, progress not too often, and an attempt's number only onto what was read.

use std::collections::HashMap;
use std::time::Instant;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Resource};
use parking_lot::Mutex;
use serde_json::json;

use crate::api::job::{RolloutJob, RolloutJobStatus};
use crate::api::meta::{self, field_managers};
use crate::controllers::Error;
use crate::controllers::runtime::calls::{Calls, Effect};
use crate::plan::job::{Due, due};

/// Which job.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: Option<u64>,
}

/// Writes statuses, and remembers the last one of each job: a cache that is behind our own write decides nothing (P12).
#[derive(Default)]
pub(super) struct StatusWriter {
    written: Mutex<HashMap<String, Written>>,
}

struct Written {
    status: RolloutJobStatus,
    resource_version: Option<u64>,
    at: Instant,
}

impl StatusWriter {
    /// The status that the next one is made from: the cache's, or our own last one while the cache is behind it.
    pub(super) fn base(
        &self,
        target: &Target,
        cached: Option<&RolloutJobStatus>,
    ) -> RolloutJobStatus {
        match self.written.lock().get(&target.uid) {
            Some(written) if target.resource_version < written.resource_version => {
                written.status.clone()
            }
            _ => cached.cloned().unwrap_or_default(),
        }
    }

    /// Writes what is due. With another attempt it is written onto the version that was read alone: two controllers cannot both begin one.
    pub(super) async fn write(
        &self,
        calls: &Calls,
        target: &Target,
        before: &RolloutJobStatus,
        after: &RolloutJobStatus,
    ) -> Result<Due, Error> {
        let last = self.last(&target.uid);
        let due = due(before, after, last.map(|(at, _)| at.elapsed()));
        if due != Due::Now {
            return Ok(due);
        }
        let mut metadata =
            json!({"name": target.name, "namespace": target.namespace, "uid": target.uid});
        let known = target
            .resource_version
            .max(last.and_then(|(_, version)| version));
        if before.attempt != after.attempt
            && let Some(version) = known
        {
            metadata["resourceVersion"] = json!(version.to_string());
        }
        let patch = json!({
            "apiVersion": meta::API_VERSION,
            "kind": meta::JOB_KIND,
            "metadata": metadata,
            "status": serde_json::to_value(after).unwrap_or_default(),
        });
        let api = api(calls, target);
        let params = PatchParams::apply(field_managers::JOB_STATUS).force();
        let object = format!("the status of {target}");
        let patch = Patch::Apply(&patch);
        let call = api.patch_status(&target.name, &params, &patch);
        let answer = calls.call(Effect::Write, "write", &object, call).await?;
        let written = Written {
            status: after.clone(),
            resource_version: version(&answer),
            at: Instant::now(),
        };
        self.written.lock().insert(target.uid.clone(), written);
        Ok(due)
    }

    /// The job was written otherwise.
    pub(super) fn note(&self, uid: &str, resource_version: Option<u64>) {
        if let Some(written) = self.written.lock().get_mut(uid) {
            written.resource_version = written.resource_version.max(resource_version);
        }
    }

    pub(super) fn forget(&self, uid: &str) {
        self.written.lock().remove(uid);
    }

    fn last(&self, uid: &str) -> Option<(Instant, Option<u64>)> {
        let written = self.written.lock();
        written
            .get(uid)
            .map(|written| (written.at, written.resource_version))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", meta::JOB_KIND, self.namespace, self.name)
    }
}

/// The interface to jobs of its namespace.
pub(super) fn api(calls: &Calls, target: &Target) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<RolloutJob>(&());
    Api::namespaced_with(calls.client().clone(), &target.namespace, &resource)
}

/// The version of an answer.
pub(super) fn version(answer: &DynamicObject) -> Option<u64> {
    answer.meta().resource_version.as_deref()?.parse().ok()
}
