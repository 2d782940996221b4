//! What there is of a pool, from caches: nothing here asks the API server.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::api::meta::annotations;
use crate::controllers::trouble::trouble;
use crate::plan::pool::{Ended, EnginePod, Trouble, Workload, refusal_of_pods};
use crate::resources::pool::{ENGINE, ENGINE_PORT, SIDECAR_PORT, SURVEY_PORT};

/// What a Deployment says.
pub(super) fn workload(deployment: &Value) -> Workload {
    let status = &deployment["status"];
    let count = |field: &str| {
        let count = status[field].as_i64().unwrap_or(0);
        i32::try_from(count).unwrap_or(i32::MAX)
    };
    let failure = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "ReplicaFailure" && condition["status"] == "True");
    Workload {
        is_current: status["observedGeneration"].as_i64()
            >= deployment["metadata"]["generation"].as_i64(),
        replicas: count("replicas"),
        ready: count("readyReplicas"),
        updated: count("updatedReplicas"),
        failure: failure.and_then(|failure| failure["message"].as_str().map(str::to_owned)),
    }
}

/// What an engine's Pod says.
pub(super) fn engine_pod(pod: &Pod) -> Option<EnginePod> {
    let status = pod.status.as_ref();
    let address = status.and_then(|status| status.pod_ip.as_deref());
    let leaving = pod.metadata.deletion_timestamp.is_some();
    let is_true = |kind: &str| {
        let conditions = status.and_then(|status| status.conditions.as_ref());
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == kind && condition.status == "True")
    };
    let annotations = pod.metadata.annotations.as_ref();
    Some(EnginePod {
        name: pod.metadata.name.clone()?,
        url: address.map(|address| format!("http://{}:{ENGINE_PORT}", host(address))),
        sidecar_url: address.map(|address| format!("http://{}:{SIDECAR_PORT}", host(address))),
        ready: !leaving && is_true("Ready"),
        revision: annotations.and_then(|all| all.get(annotations::REVISION).cloned()),
        trouble: trouble(pod),
        ended: ended(pod),
        state: None,
    })
}

/// The last words of an engine that ended before it had started.
fn ended(pod: &Pod) -> Option<Ended> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let engine = containers.iter().find(|one| one.name == ENGINE)?;
    if engine.started == Some(true) {
        return None;
    }
    let state = engine.state.as_ref();
    let now = state.and_then(|state| state.terminated.as_ref());
    let before = engine.last_state.as_ref();
    let before = before.and_then(|state| state.terminated.as_ref());
    let words = now.or(before)?.message.clone()?;
    let runs = state.and_then(|state| state.running.as_ref());
    Some(Ended {
        words,
        again: runs.and_then(|runs| Some(runs.started_at.as_ref()?.0)),
    })
}

/// Base URL of the Pod that asks external engines.
pub(super) fn survey_address(pods: &[Arc<Pod>]) -> Option<String> {
    let mut there = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    there.find_map(|pod| {
        let address = pod.status.as_ref()?.pod_ip.as_deref()?;
        Some(format!("http://{}:{SURVEY_PORT}", host(address)))
    })
}

/// Why that Pod does not start.
pub(super) fn survey_trouble(deployment: Option<&Workload>, pods: &[Arc<Pod>]) -> Option<Trouble> {
    if let Some(trouble) = pods.iter().find_map(|pod| trouble(pod)) {
        return Some(trouble);
    }
    let message = deployment?.failure.clone()?;
    Some(Trouble {
        reason: refusal_of_pods(&message),
        message,
    })
}

fn host(address: &str) -> String {
    if address.contains(':') {
        format!("[{address}]")
    } else {
        address.to_owned()
    }
}
