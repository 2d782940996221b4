//! Why a Pod of ours does not start, from what the API server says about it.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::api::conditions::reasons;
use crate::plan::pool::Trouble;

/// Why a Pod does not start, when waiting does not help. One that leaves need not start.
pub(super) fn trouble(pod: &Pod) -> Option<Trouble> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = pod.status.as_ref()?;
    let unscheduled = status.conditions.iter().flatten().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(condition) = unscheduled {
        let message = condition.message.clone().unwrap_or_default();
        // The scheduler looks for volumes first.
        let is_missing =
            message.contains("persistentvolumeclaim \"") && message.contains("\" not found");
        return Some(Trouble {
            reason: if is_missing {
                reasons::REFERENCE_NOT_FOUND
            } else {
                reasons::UNSCHEDULABLE
            },
            message,
        });
    }
    let containers = status.init_container_statuses.iter().flatten();
    containers
        .chain(status.container_statuses.iter().flatten())
        .find_map(waiting)
}

fn waiting(container: &ContainerStatus) -> Option<Trouble> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    match waiting.reason.as_deref()? {
        // The kubelet goes back and forth between two words of one failure, each with a text that changes; the image does not.
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            Some(Trouble {
                reason: reasons::IMAGE_PULL_FAILED,
                message: format!(
                    "the image {} of the container {} cannot be pulled",
                    container.image, container.name
                ),
            })
        }
        "CreateContainerConfigError" => Some(Trouble {
            reason: reasons::REFERENCE_NOT_FOUND,
            message: waiting.message.clone().unwrap_or_default(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_that_is_missing_is_no_want_of_nodes() {
        for (message, expected) in [
            (
                "0/3 nodes are available: persistentvolumeclaim \"models\" not found. not found",
                reasons::REFERENCE_NOT_FOUND,
            ),
            (
                "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                reasons::UNSCHEDULABLE,
            ),
        ] {
            let pod = json!({"metadata": {}, "status": {"conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
            ]}});
            let found = trouble(&serde_json::from_value(pod).unwrap()).unwrap();
            assert_eq!((found.reason, found.message.as_str()), (expected, message));
        }
    }
}
