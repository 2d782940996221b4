//! Why a Pod does not get beyond its volumes: a Secret, `ConfigMap` or key that they name is not there. The kubelet says so in an event alone.
//!
//! Events are read for a Pod that has a node and no container yet, and of one job's agents for one Pod: all have the same volumes. Asked for at
//! growing intervals; what was answered last holds until then. Guarantee: nothing that the operator may not read (a Secret) is read.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;

use super::status::Target;
use crate::api::conditions::reasons;
use crate::controllers::runtime::calls::{Calls, Effect};
use crate::plan::pool::Trouble;

/// The first wait, from when the Pod has a node, and the shortest between two questions.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest between two questions.
const LONGEST: Duration = Duration::from_secs(30);
/// Events that are read of one Pod.
const MOST: u32 = 100;
/// What the kubelet calls it.
const FAILED_MOUNT: &str = "FailedMount";

/// A Pod that has a node and no container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    pub(super) name: String,
    pub(super) uid: String,
    /// Since when it has a node.
    pub(super) since: Timestamp,
}

/// Whether a Pod has got stuck before its first container.
pub(super) fn stuck(pod: &Pod) -> Option<Stuck> {
    let status = pod.status.as_ref()?;
    let is_pending = status.phase.as_deref() == Some("Pending");
    if !is_pending || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let scheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "True")?;
    let mut containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten();
    let waits = |state: &k8s_openapi::api::core::v1::ContainerState| {
        let reason = state
            .waiting
            .as_ref()
            .and_then(|waiting| waiting.reason.as_deref());
        matches!(reason, Some("ContainerCreating" | "PodInitializing"))
    };
    if !containers.all(|container| container.state.as_ref().is_none_or(waits)) {
        return None;
    }
    Some(Stuck {
        name: pod.metadata.name.clone()?,
        uid: pod.metadata.uid.clone()?,
        since: scheduled.last_transition_time.as_ref()?.0,
    })
}

/// What was answered, by UID of the job and of the Pod.
#[derive(Default)]
pub(super) struct Mounts {
    answers: Mutex<HashMap<String, HashMap<String, Answer>>>,
}

#[derive(Clone)]
struct Answer {
    at: Timestamp,
    trouble: Option<Trouble>,
}

impl Mounts {
    /// What each of these Pods of a job misses, by its UID, and when to look again. Others of the job are forgotten.
    pub(super) async fn of(
        &self,
        calls: &Calls,
        target: &Target,
        stuck: &[Stuck],
        now: Timestamp,
    ) -> (HashMap<String, Trouble>, Option<Duration>) {
        let mut known = self.answers.lock().remove(&target.uid).unwrap_or_default();
        known.retain(|uid, _| stuck.iter().any(|pod| pod.uid == *uid));
        let mut again: Option<Duration> = None;
        for pod in stuck {
            let age = elapsed(pod.since, now);
            let pause = (age / 10).clamp(SHORTEST, LONGEST);
            let asked = known.get(&pod.uid).map_or(pod.since, |answer| answer.at);
            let mut left = pause.saturating_sub(elapsed(asked, now));
            if left.is_zero() {
                let trouble = read(calls, target, pod).await;
                known.insert(pod.uid.clone(), Answer { at: now, trouble });
                left = pause;
            }
            again = Some(again.map_or(left, |again| again.min(left)));
        }
        let troubles = known
            .iter()
            .filter_map(|(uid, answer)| Some((uid.clone(), answer.trouble.clone()?)))
            .collect();
        if !known.is_empty() {
            self.answers.lock().insert(target.uid.clone(), known);
        }
        (troubles, again)
    }

    /// A job is gone.
    pub(super) fn forget(&self, job: &str) {
        self.answers.lock().remove(job);
    }
}

/// An answer that fails says nothing: the Pod may well start.
async fn read(calls: &Calls, target: &Target, pod: &Stuck) -> Option<Trouble> {
    let api: Api<Event> = Api::namespaced(calls.client().clone(), &target.namespace);
    let params = ListParams::default()
        .fields(&format!("regarding.uid={}", pod.uid))
        .limit(MOST);
    let object = format!("events of Pod {}/{}", target.namespace, pod.name);
    match calls
        .call(Effect::Read, "list", &object, api.list(&params))
        .await
    {
        Ok(events) => missing(&events.items),
        Err(error) => {
            tracing::debug!(%error, "why a pod does not start is not known");
            None
        }
    }
}

/// What the kubelet said last, if that is something that is not there.
fn missing(events: &[Event]) -> Option<Trouble> {
    // Of one second, the one that went on counts.
    let last = events
        .iter()
        .max_by_key(|event| (time(event), event.reason.as_deref() != Some(FAILED_MOUNT)))?;
    if last.reason.as_deref() != Some(FAILED_MOUNT) {
        return None;
    }
    let note = last.note.as_deref()?;
    let is_missing = note.contains("not found") || note.contains("references non-existent");
    is_missing.then(|| Trouble {
        reason: reasons::REFERENCE_NOT_FOUND,
        message: note.to_owned(),
    })
}

fn time(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .map(|series| series.last_observed_time.0);
    let old = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
    let new = event.event_time.as_ref().map(|time| time.0);
    series.max(old).max(new)
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NO_SECRET: &str =
        "MountVolume.SetUp failed for volume \"keys\" : secret \"later\" not found";

    fn events(all: &[(&str, u8, &str)]) -> Vec<Event> {
        all.iter()
            .map(|(reason, second, note)| {
                let at = format!("2026-01-01T00:00:{second:02}Z");
                serde_json::from_value(json!({
                    "metadata": {}, "eventTime": null, "reason": reason, "note": note, "deprecatedLastTimestamp": at,
                }))
                .unwrap()
            })
            .collect()
    }

    #[test]
    fn the_last_word_of_the_kubelet_counts() {
        let key =
            "MountVolume.SetUp failed for volume \"c\" : references non-existent config key: k";
        for (all, expected) in [
            (
                vec![("Scheduled", 1, "to a"), ("FailedMount", 2, NO_SECRET)],
                Some(NO_SECRET),
            ),
            (
                vec![("FailedMount", 4, key), ("Scheduled", 1, "to a")],
                Some(key),
            ),
            (
                vec![("FailedMount", 2, NO_SECRET), ("Pulling", 2, "image")],
                None,
            ),
            (
                vec![("FailedMount", 2, NO_SECRET), ("Pulling", 3, "image")],
                None,
            ),
            (
                vec![("FailedMount", 2, "MountVolume.SetUp failed: exit status 32")],
                None,
            ),
            (vec![], None),
        ] {
            let found = missing(&events(&all)).map(|trouble| trouble.message);
            assert_eq!(found.as_deref(), expected, "{all:?}");
        }
    }

    fn pod(phase: &str, state: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "job-driver-1", "uid": "u"},
            "status": {
                "phase": phase,
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
                "initContainerStatuses": [{
                    "name": "router", "state": state, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                }],
                "containerStatuses": [{
                    "name": "driver", "state": {"waiting": {"reason": "PodInitializing"}}, "image": "", "imageID": "",
                    "ready": false, "restartCount": 0,
                }],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_is_stuck_that_has_a_node_and_no_container() {
        let waits = json!({"waiting": {"reason": "PodInitializing"}});
        let found = stuck(&pod("Pending", &waits)).unwrap();
        assert_eq!(
            (found.name.as_str(), found.uid.as_str()),
            ("job-driver-1", "u")
        );
        for (phase, state) in [
            ("Running", waits.clone()),
            (
                "Pending",
                json!({"running": {"startedAt": "2026-01-01T00:00:02Z"}}),
            ),
            (
                "Pending",
                json!({"waiting": {"reason": "ImagePullBackOff"}}),
            ),
        ] {
            assert_eq!(stuck(&pod(phase, &state)), None, "{phase} {state}");
        }
        let mut nowhere = pod("Pending", &waits);
        nowhere.status.as_mut().unwrap().conditions = None;
        assert_eq!(stuck(&nowhere), None);
    }
}
