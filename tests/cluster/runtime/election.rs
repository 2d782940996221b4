//! Two controllers and one lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client};
use nix::sys::signal::Signal;

use super::controller::{Controller, until};
use crate::api::{client, namespace};

const LEASE_SECONDS: u64 = 3;

async fn candidate(namespace: &str, name: &str) -> Controller {
    Controller::candidate(namespace, name, LEASE_SECONDS).await
}

async fn lease(client: &Client, namespace: &str) -> LeaseSpec {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    leases.get("rollout-operator").await.unwrap().spec.unwrap()
}

fn holder(lease: &LeaseSpec) -> &str {
    lease.holder_identity.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn a_leader_that_was_stopped_past_its_lease_ends_when_it_wakes() {
    let client = client().await;
    let namespace = namespace(&client, "paused").await;
    let mut first = candidate(&namespace, "first").await;
    until("the first leads", &first, async || first.leads().await).await;
    let second = candidate(&namespace, "second").await;
    assert!(!second.leads().await, "two lead");

    first.signal(Signal::SIGSTOP);
    let last = lease(&client, &namespace).await;
    assert!(holder(&last).starts_with("first_"));
    until("the second leads", &second, async || second.leads().await).await;
    let taken = lease(&client, &namespace).await;
    assert!(holder(&taken).starts_with("second_"));
    assert_eq!(
        taken.lease_transitions,
        Some(last.lease_transitions.unwrap() + 1)
    );
    // The first one leads by its own clock for two thirds of this, and may have renewed once more before it was stopped.
    let silence = taken
        .acquire_time
        .unwrap()
        .0
        .duration_since(last.renew_time.unwrap().0);
    let silence = Duration::try_from(silence).unwrap();
    assert!(
        silence >= Duration::from_secs(LEASE_SECONDS),
        "taken after {silence:?}"
    );

    first.wakes_without_its_lease().await;
    let after = lease(&client, &namespace).await;
    assert_eq!(after.holder_identity, taken.holder_identity);
    assert_eq!(after.lease_transitions, taken.lease_transitions);
}

#[tokio::test]
async fn a_leader_that_is_told_to_stop_gives_the_lease_back() {
    let client = client().await;
    let namespace = namespace(&client, "released").await;
    let mut first = candidate(&namespace, "first").await;
    until("the first leads", &first, async || first.leads().await).await;
    first.signal(Signal::SIGTERM);
    let status = first.end().await;
    assert!(status.success(), "{}", first.log());
    let given_back = lease(&client, &namespace).await;
    assert_eq!(holder(&given_back), "");
    let second = candidate(&namespace, "second").await;
    until("the second leads", &second, async || second.leads().await).await;
}

#[tokio::test]
async fn a_leader_whose_lease_is_deleted_or_taken_ends() {
    let client = client().await;
    let namespace = namespace(&client, "taken").await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
    let mut first = candidate(&namespace, "first").await;
    until("the first leads", &first, async || first.leads().await).await;
    leases
        .delete("rollout-operator", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(first.end().await.code(), Some(1));
    assert!(
        first.log().contains("somebody deleted it"),
        "{}",
        first.log()
    );

    let mut second = candidate(&namespace, "second").await;
    until("the second leads", &second, async || second.leads().await).await;
    let patch = serde_json::json!({"spec": {"holderIdentity": "a person"}});
    let patch = kube::api::Patch::Merge(&patch);
    leases
        .patch(
            "rollout-operator",
            &kube::api::PatchParams::default(),
            &patch,
        )
        .await
        .unwrap();
    assert_eq!(second.end().await.code(), Some(1));
    assert!(
        second.log().contains("another controller took it"),
        "{}",
        second.log()
    );
}
