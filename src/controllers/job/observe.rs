//! What there is of a job's Pods, from what the API server says about them.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;

use super::agent_fault;
use crate::api::meta::{finalizers, labels};
use crate::controllers::trouble::trouble;
use crate::plan::job::{AgentLife, AgentPod, DriverLife, DriverPod, Facts};

/// The driver's container.
const DRIVER: &str = "driver";

/// A Pod of a job's driver.
pub(super) fn driver(pod: &Pod) -> Option<DriverPod> {
    let metadata = &pod.metadata;
    let status = pod.status.as_ref();
    let driver = container(pod, DRIVER);
    Some(DriverPod {
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        attempt: number(pod, labels::ATTEMPT)?,
        version: pod
            .metadata
            .labels
            .as_ref()?
            .get(labels::APP_VERSION)
            .cloned(),
        address: status
            .and_then(|status| status.pod_ip.clone())
            .filter(|address| !address.is_empty()),
        created: metadata.creation_timestamp.as_ref()?.0,
        leaving: leaving(pod),
        is_disrupted: is_disrupted(pod),
        is_held: metadata
            .finalizers
            .iter()
            .flatten()
            .any(|finalizer| finalizer == finalizers::LAST_WORD),
        restarts: driver.map_or(0, |driver| driver.restart_count),
        crash: driver.and_then(crash),
        life: life(pod, driver),
        trouble: trouble(pod),
    })
}

fn life(pod: &Pod, driver: Option<&ContainerStatus>) -> DriverLife {
    let phase = phase(pod);
    let state = driver.and_then(|driver| driver.state.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let is_over = matches!(phase, "Succeeded" | "Failed");
    if let Some(ended) = ended {
        // The Pod's end waits for its sidecars; one that did not end well is started again unless the Pod goes.
        let is_leaving = pod.metadata.deletion_timestamp.is_some();
        if is_over || is_leaving || ended.exit_code == 0 {
            let facts = ended.message.as_deref().and_then(Facts::of_last_word);
            return DriverLife::Ended(facts.map(Box::new));
        }
        return DriverLife::Running;
    }
    // Evicted, or deleted before a node had it: nothing reports an end.
    let has_node = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.node_name.is_some());
    if is_over || (pod.metadata.deletion_timestamp.is_some() && !has_node) {
        return DriverLife::Ended(None);
    }
    let runs = state.is_some_and(|state| state.running.is_some());
    if runs || driver.is_some_and(|driver| driver.restart_count > 0) {
        DriverLife::Running
    } else {
        DriverLife::Starting
    }
}

fn crash(driver: &ContainerStatus) -> Option<String> {
    let ended = driver.last_state.as_ref()?.terminated.as_ref()?;
    let facts = ended.message.as_deref().and_then(Facts::of_last_word);
    let said = facts.and_then(|facts| facts.outcome);
    let reason = || {
        let reason = ended.reason.as_deref().unwrap_or("no reason");
        format!("it ended with exit code {} ({reason})", ended.exit_code)
    };
    Some(said.map_or_else(reason, |outcome| outcome.message))
}

/// A Pod of a job's agents.
pub(super) fn agent(pod: &Pod) -> Option<AgentPod> {
    Some(AgentPod {
        name: pod.metadata.name.clone()?,
        uid: pod.metadata.uid.clone()?,
        attempt: number(pod, labels::ATTEMPT)?,
        holder: (number(pod, labels::SLOT)?, number(pod, labels::GENERATION)?),
        leaving: leaving(pod),
        life: match phase(pod) {
            "Succeeded" => ended(pod, false),
            "Failed" => ended(pod, true),
            "Running" => AgentLife::Running,
            _ => AgentLife::Starting,
        },
        fault: agent_fault::of(pod),
        trouble: trouble(pod),
    })
}

fn ended(pod: &Pod, failed: bool) -> AgentLife {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let last = containers
        .into_iter()
        .flatten()
        .filter_map(|container| {
            let ended = container.state.as_ref()?.terminated.as_ref()?;
            Some((ended.finished_at.as_ref()?.0, container, ended))
        })
        .max_by_key(|(at, ..)| *at);
    let word = status.and_then(|status| status.reason.clone());
    let reason = match (word, &last) {
        (Some(word), _) => word,
        (None, Some((_, container, ended))) => format!(
            "the container {} ended: {} ({})",
            container.name,
            ended.reason.as_deref().unwrap_or("no reason"),
            ended.exit_code
        ),
        (None, None) => "the pod ended".to_owned(),
    };
    AgentLife::Ended {
        failed,
        at: last.map(|(at, ..)| at),
        reason,
    }
}

/// Taken away by the scheduler, an eviction, the kubelet or the collector of Pods.
fn is_disrupted(pod: &Pod) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    let mut conditions = status.conditions.iter().flatten();
    let is_target = conditions
        .any(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True");
    let reason = status.reason.as_deref().unwrap_or_default();
    // Older kubelets say it in a word alone.
    let is_taken = matches!(
        reason,
        "Evicted" | "NodeLost" | "Shutdown" | "NodeShutdown" | "Preempting"
    );
    is_target || is_taken || is_turned_away(reason)
}

/// A node that has just started, or lost a device, may turn away what the scheduler gave it: nothing of that Pod ever ran.
fn is_turned_away(reason: &str) -> bool {
    matches!(
        reason,
        "UnexpectedAdmissionError" | "NodeAffinity" | "NodePorts"
    ) || reason.starts_with("OutOf")
}

fn leaving(pod: &Pod) -> Option<Timestamp> {
    // The API server adds the grace period to the time of the request.
    pod.metadata.deletion_timestamp.as_ref().map(|time| time.0)
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn number<T: std::str::FromStr>(pod: &Pod, label: &str) -> Option<T> {
    pod.metadata.labels.as_ref()?.get(label)?.parse().ok()
}

fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let mut containers = status.container_statuses.iter().flatten();
    containers.find(|container| container.name == name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::is_disrupted;

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({"status": status})).unwrap()
    }

    #[test]
    fn what_the_cluster_took_away_or_never_let_run_is_no_failure_of_the_job() {
        for reason in [
            "Evicted",
            "NodeShutdown",
            "Preempting",
            "UnexpectedAdmissionError",
            "NodeAffinity",
            "OutOfcpu",
            "OutOfnvidia.com/gpu",
        ] {
            let status = json!({"phase": "Failed", "reason": reason});
            assert!(is_disrupted(&pod(&status)), "{reason}");
        }
        let target = json!([{"type": "DisruptionTarget", "status": "True"}]);
        let status = json!({"phase": "Failed", "conditions": target});
        assert!(is_disrupted(&pod(&status)));
    }

    #[test]
    fn what_failed_by_itself_is() {
        for status in [
            json!({"phase": "Failed"}),
            json!({"phase": "Failed", "reason": "DeadlineExceeded"}),
            json!({"phase": "Failed", "reason": "OOMKilled"}),
            json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "False"}]}),
        ] {
            assert!(!is_disrupted(&pod(&status)), "{status}");
        }
    }
}
