//! Differences between a wish and a live object, by what the API server says we own.

use rollout_operator::controllers::runtime::ownership::{Difference, difference, fingerprint};
use serde_json::{Value, json};

const MANAGER: &str = "rollout-operator/pool";

/// A live object of which we own some fields.
fn live(mut object: Value, owned: &Value) -> Value {
    object["metadata"]["managedFields"] = json!([
        {"manager": "somebody", "operation": "Update", "fieldsV1": {"f:spec": {"f:theirs": {}}}},
        {"manager": MANAGER, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}},
        {"manager": MANAGER, "operation": "Apply", "fieldsV1": owned},
    ]);
    object
}

fn found(desired: &Value, live: &Value) -> Option<String> {
    difference(desired, live, MANAGER).map(|found| found.to_string())
}

#[test]
fn what_we_never_applied_is_applied() {
    let object = json!({"metadata": {"name": "a"}, "spec": {}});
    assert_eq!(
        difference(&object, &object, MANAGER),
        Some(Difference::NeverApplied)
    );
    assert_eq!(fingerprint(&object, MANAGER), Value::Null);
}

#[test]
fn a_zero_that_somebody_raised_is_not_taken_for_a_zero_that_was_left_out() {
    let desired = json!({"spec": {"replicas": 0, "paused": false}});
    let owned = json!({"f:spec": {"f:other": {}}});
    let with = |replicas: Value| live(json!({"spec": {"replicas": replicas, "other": 1}}), &owned);
    let mut desired_with_other = desired.clone();
    desired_with_other["spec"]["other"] = json!(1);
    assert_eq!(found(&desired_with_other, &with(json!(0))), None);
    assert_eq!(
        found(&desired_with_other, &with(json!(1))).unwrap(),
        "spec.replicas was taken by another manager"
    );
}

#[test]
fn entries_of_a_list_are_found_by_their_key_wherever_they_are() {
    let desired = json!({"spec": {"ports": [
        {"port": 80, "name": "a"},
        {"port": 80, "protocol": "UDP", "name": "b"},
    ]}});
    let owned = json!({"f:spec": {"f:ports": {
        r#"k:{"port":80,"protocol":"UDP"}"#: {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}},
        r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:name": {}, "f:port": {}},
    }}});
    let object = |name: &str| {
        json!({"spec": {"ports": [
            {"port": 1, "protocol": "TCP", "name": "injected"},
            {"port": 80, "protocol": "UDP", "name": "b"},
            {"port": 80, "protocol": "TCP", "name": name, "nodePort": 3},
        ]}})
    };
    assert_eq!(found(&desired, &live(object("a"), &owned)), None);
    assert_eq!(
        found(&desired, &live(object("x"), &owned)).unwrap(),
        "spec.ports[80,TCP].name has another value"
    );
    let mut gone = object("a");
    gone["spec"]["ports"].as_array_mut().unwrap().pop();
    assert!(found(&desired, &live(gone, &owned)).is_some());
    // One entry is never two: the other one is left over.
    let one = json!({"spec": {"ports": [{"port": 80}]}});
    let nameless = json!({"f:spec": {"f:ports": {
        r#"k:{"port":80,"protocol":"UDP"}"#: {".": {}, "f:port": {}},
        r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}},
    }}});
    let left = found(&one, &live(object("a"), &nameless)).unwrap();
    assert!(left.ends_with("is no longer wanted"), "{left}");
}

#[test]
fn members_of_a_set_that_are_others_stay() {
    let desired = json!({"metadata": {"finalizers": ["ours"]}});
    let owned = json!({"f:metadata": {"f:finalizers": {r#"v:"ours""#: {}}}});
    let object = json!({"metadata": {"finalizers": ["theirs", "ours"]}});
    assert_eq!(found(&desired, &live(object, &owned)), None);
    let both = json!({"metadata": {"finalizers": ["ours", "more"]}});
    let object = json!({"metadata": {"finalizers": ["ours"]}});
    assert!(found(&both, &live(object, &owned)).is_some());
}

#[test]
fn values_that_are_owned_as_a_whole_may_have_defaults_and_nothing_else() {
    let desired =
        json!({"spec": {"rules": [{"port": 80}], "limits": {"cpu": "1000m"}, "text": "1000m"}});
    let owned = json!({"f:spec": {"f:rules": {}, "f:limits": {"f:cpu": {}}, "f:text": {}}});
    let object = |rules: Value, cpu: &str, text: &str| {
        let object = json!({"spec": {"rules": rules, "limits": {"cpu": cpu}, "text": text}});
        live(object, &owned)
    };
    let defaulted = json!([{"port": 80, "protocol": "TCP"}]);
    assert_eq!(
        found(&desired, &object(defaulted.clone(), "1", "1000m")),
        None
    );
    // Only amounts are amounts.
    assert!(found(&desired, &object(defaulted.clone(), "1", "1")).is_some());
    assert!(found(&desired, &object(defaulted, "2", "1000m")).is_some());
    assert!(
        found(
            &desired,
            &object(json!([{"port": 80}, {"port": 81}]), "1", "1000m")
        )
        .is_some()
    );
    assert!(found(&desired, &object(json!([{"port": 81}]), "1", "1000m")).is_some());
}

#[test]
fn a_fingerprint_sees_what_is_ours_and_nothing_else() {
    let owned =
        json!({"f:spec": {"f:a": {}, "f:list": {r#"k:{"name":"x"}"#: {".": {}, "f:v": {}}}}});
    let object = |a: i32, v: i32, theirs: i32| {
        let object = json!({"spec": {"a": a, "theirs": theirs, "list": [{"name": "x", "v": v, "w": theirs}]}});
        fingerprint(&live(object, &owned), MANAGER)
    };
    assert_eq!(object(1, 1, 1), object(1, 1, 2));
    assert_ne!(object(1, 1, 1), object(2, 1, 1));
    assert_ne!(object(1, 1, 1), object(1, 2, 1));
}
