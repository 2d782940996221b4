//! Whose an object is that has the name of a wanted one.

use rollout_operator::controllers::runtime::calls::Identity;
use rollout_operator::controllers::runtime::prune::{Standing, Victim, standing};
use serde_json::{Value, json};

/// A service account of a pool.
fn account(pool: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {
            "name": "a-pool", "namespace": "rl", "uid": "u-1", "resourceVersion": "7",
            "labels": {"app.kubernetes.io/managed-by": "rollout-operator"},
            "ownerReferences": [{"apiVersion": "rollout-operator.dev/v1alpha1", "kind": "SGLangPool", "name": pool, "uid": uid, "controller": true}],
        },
    })
}

/// Settings of a job, which has no owner but a label.
fn settings(job: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "b-driver-1", "namespace": "rl", "uid": "u-1", "resourceVersion": "7",
            "labels": {
                "app.kubernetes.io/managed-by": "rollout-operator",
                "rollout-operator.dev/job": job, "rollout-operator.dev/job-uid": uid,
            },
        },
    })
}

fn of(desired: &Value, live: &Value) -> Standing {
    standing(desired, live, &Identity::of(desired).unwrap())
}

fn left_over(object: &Value) -> Standing {
    Standing::LeftOver(Victim {
        identity: Identity::of(object).unwrap(),
        uid: "u-1".into(),
        resource_version: "7".into(),
    })
}

fn leaving(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-11-30T12:00:00Z");
    object
}

#[test]
fn an_owners_own_object_is_its_own() {
    for object in [account("a", "new"), settings("b", "new")] {
        assert_eq!(of(&object, &object), Standing::Ours);
        assert_eq!(of(&object, &leaving(object.clone())), Standing::Leaving);
    }
}

/// Garbage collection may take minutes to see that the owner of that UID is gone, and until then a pool of the same name could not start.
#[test]
fn what_an_owner_of_the_same_name_left_is_in_the_way() {
    let both = [
        (account("a", "new"), account("a", "old")),
        (settings("b", "new"), settings("b", "old")),
    ];
    for (desired, live) in both {
        assert_eq!(of(&desired, &live), left_over(&live));
        assert_eq!(of(&desired, &leaving(live)), Standing::Leaving);
    }
}

#[test]
fn what_others_have_is_left_alone() {
    let foreign = |owner: &str| Standing::Foreign {
        owner: owner.into(),
    };
    let desired = account("a", "new");
    assert_eq!(
        of(&desired, &account("other", "old")),
        foreign("SGLangPool other")
    );
    // The labels are not ours: it only has the name.
    let mut users = account("a", "old");
    users["metadata"]["labels"] = json!({});
    assert_eq!(of(&desired, &users), foreign("SGLangPool a"));
    users["metadata"]["ownerReferences"] = json!([]);
    let nobody = foreign("nobody that the operator knows");
    assert_eq!(of(&desired, &users), nobody);
    assert_eq!(of(&settings("b", "new"), &settings("other", "old")), nobody);
}
