//! What there is of a pool, from caches: nothing here asks the API server.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::Value;

use crate::api::conditions::reasons;
use crate::api::meta::annotations;
use crate::plan::pool::{EnginePod, Trouble, Workload};
use crate::resources::pool::ENGINE_PORT;

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
        ready: !leaving && is_true("Ready"),
        revision: annotations.and_then(|all| all.get(annotations::REVISION).cloned()),
        trouble: if leaving { None } else { trouble(pod) },
    })
}

fn host(address: &str) -> String {
    if address.contains(':') {
        format!("[{address}]")
    } else {
        address.to_owned()
    }
}

/// Why a Pod does not start, when waiting does not help.
fn trouble(pod: &Pod) -> Option<Trouble> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.iter().flatten();
    let unscheduled = conditions
        .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .find(|condition| condition.reason.as_deref() == Some("Unschedulable"));
    if let Some(condition) = unscheduled {
        return Some(Trouble {
            reason: reasons::UNSCHEDULABLE,
            message: condition.message.clone().unwrap_or_default(),
        });
    }
    let containers = status.init_container_statuses.iter().flatten();
    containers
        .chain(status.container_statuses.iter().flatten())
        .find_map(waiting)
}

fn waiting(container: &ContainerStatus) -> Option<Trouble> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = match waiting.reason.as_deref()? {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            reasons::IMAGE_PULL_FAILED
        }
        "CreateContainerConfigError" => reasons::REFERENCE_NOT_FOUND,
        _ => return None,
    };
    // The kubelet goes back and forth between two words of one failure, each with a text that changes; the image does not.
    let message = if reason == reasons::IMAGE_PULL_FAILED {
        format!(
            "the image {} of the container {} cannot be pulled",
            container.image, container.name
        )
    } else {
        waiting.message.clone().unwrap_or_default()
    };
    Some(Trouble { reason, message })
}
