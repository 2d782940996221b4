//! Templates of users over the operator's Pods.

use rollout_operator::api::meta::labels;
use rollout_operator::resources::overlay::merge;
use serde_json::{Value, json};

use super::{a_pool, arguments, container, env, mount, volume};

/// The Pod template of an engine with a template, and what it wanted in vain.
fn engine(template: &Value) -> (Value, Vec<String>) {
    // Validation refuses some of these before; a template must not get further by another way.
    let mut pool = a_pool(&json!({"model": {"path": "m"}, "engine": {"image": "i"}}));
    pool.spec["engine"]["template"] = template.clone();
    let objects = pool.pool_objects().unwrap();
    let deployment = objects.engines.unwrap().deployment.value;
    (deployment["spec"]["template"].clone(), objects.overruled)
}

#[test]
fn containers_are_merged_by_name_and_others_added() {
    let (template, overruled) = engine(&json!({"spec": {"containers": [
        {"name": "watcher", "image": "w"},
        {"name": "engine", "image": "mine", "resources": {"limits": {"memory": "1Gi"}}},
    ]}}));
    let names: Vec<_> = template["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(names, ["engine", "watcher"]);
    let engine = container(&template["spec"], "engine");
    assert_eq!(engine["image"], "mine");
    assert_eq!(
        engine["resources"]["limits"],
        json!({"memory": "1Gi", "nvidia.com/gpu": "1"})
    );
    assert_eq!(overruled, [] as [&str; 0]);
}

#[test]
fn what_the_operator_owns_wins_and_is_listed() {
    let (template, overruled) = engine(&json!({
        "metadata": {"labels": {labels::POOL: "another", labels::APP_MANAGED_BY: "me", "mine": "x"}, "annotations": {"rollout-operator.dev/revision": "1", "mine": "y"}},
        "spec": {
            "enableServiceLinks": true,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 5,
            "serviceAccountName": "admin",
            "initContainers": [{"name": "sidecar", "image": "evil", "resources": {"requests": {"cpu": 1}}}],
            "containers": [{"name": "engine", "args": ["--host=127.0.0.1"], "resources": {"limits": {"nvidia.com/gpu": 8}},
                "lifecycle": {"preStop": {"exec": {"command": ["true"]}}}, "ports": [{"containerPort": 30000, "name": "web"}]}],
        },
    }));
    let at = "spec.engine.template";
    let expected = [
        format!("{at}.spec.serviceAccountName"),
        format!("{at}.spec.enableServiceLinks"),
        format!("{at}.spec.terminationGracePeriodSeconds"),
        format!("{at}.spec.initContainers[sidecar].image"),
        format!("{at}.spec.containers[engine].args"),
        format!("{at}.spec.containers[engine].ports[30000].name"),
        format!("{at}.spec.containers[engine].lifecycle.preStop"),
        format!("{at}.spec.containers[engine].resources.limits.nvidia.com/gpu"),
        format!("{at}.metadata.labels[{}]", labels::POOL),
        format!("{at}.metadata.labels[{}]", labels::APP_MANAGED_BY),
        format!("{at}.metadata.annotations[rollout-operator.dev/revision]"),
    ];
    assert_eq!(overruled, expected);
    let spec = &template["spec"];
    assert_eq!(spec["enableServiceLinks"], false);
    let engine = container(spec, "engine");
    assert!(arguments(engine).contains(&"--host=0.0.0.0"));
    assert_eq!(
        engine["lifecycle"]["preStop"].as_object().unwrap().len(),
        1,
        "{engine}"
    );
    assert_eq!(
        container(spec, "sidecar")["resources"]["requests"]["cpu"],
        1
    );
    let metadata = &template["metadata"];
    assert_eq!(metadata["labels"][labels::POOL], "pool");
    assert_eq!(metadata["labels"][labels::APP_MANAGED_BY], labels::OPERATOR);
    assert_eq!(metadata["labels"]["mine"], "x");
    assert_eq!(metadata["annotations"]["mine"], "y");
    assert_ne!(
        metadata["annotations"]["rollout-operator.dev/revision"],
        "1"
    );
}

#[test]
fn a_template_that_wants_what_is_so_anyway_is_not_listed() {
    let (_, overruled) = engine(
        &json!({"spec": {"enableServiceLinks": false, "containers": [{"name": "engine", "ports": [{"containerPort": 30000, "name": "http"}]}]}}),
    );
    assert_eq!(overruled, [] as [&str; 0]);
}

#[test]
fn entries_whose_members_exclude_each_other_are_replaced() {
    let (template, _) = engine(&json!({"spec": {
        "volumes": [{"name": "model", "persistentVolumeClaim": {"claimName": "own"}}],
        "containers": [{"name": "engine", "env": [{"name": "HF_HOME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 60}}],
    }}));
    let spec = &template["spec"];
    assert_eq!(
        volume(spec, "model"),
        &json!({"name": "model", "persistentVolumeClaim": {"claimName": "own"}})
    );
    let engine = container(spec, "engine");
    assert_eq!(
        env(engine, "HF_HOME"),
        &json!({"name": "HF_HOME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    );
    let probe = &engine["livenessProbe"];
    assert!(probe.get("tcpSocket").is_none(), "{probe}");
    assert_eq!(
        (&probe["periodSeconds"], &probe["timeoutSeconds"]),
        (&json!(60), &json!(5))
    );
}

#[test]
fn mounts_are_merged_by_their_path() {
    let (template, _) = engine(
        &json!({"spec": {"containers": [{"name": "engine", "volumeMounts": [{"mountPath": "/huggingface", "subPath": "team"}]}]}}),
    );
    let mounted = mount(container(&template["spec"], "engine"), "/huggingface");
    assert_eq!(
        mounted,
        &json!({"name": "model", "mountPath": "/huggingface", "subPath": "team"})
    );
}

#[test]
fn fields_that_this_client_does_not_know_survive() {
    let (template, _) = engine(
        &json!({"spec": {"futureField": {"deep": [1]}, "containers": [{"name": "engine", "futureField": true}]}}),
    );
    assert_eq!(template["spec"]["futureField"], json!({"deep": [1]}));
    assert_eq!(container(&template["spec"], "engine")["futureField"], true);
}

#[test]
fn null_removes_a_default() {
    let (template, _) =
        engine(&json!({"spec": {"containers": [{"name": "engine", "livenessProbe": null}]}}));
    assert!(
        container(&template["spec"], "engine")
            .get("livenessProbe")
            .is_none()
    );
}

#[test]
fn ports_are_told_apart_by_number_and_protocol() {
    let base = json!({"ports": [{"containerPort": 80, "name": "a"}]});
    let merged = merge(
        base,
        &json!({"ports": [{"containerPort": 80, "protocol": "TCP", "hostIP": "x"}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 81}]}),
    );
    let expected = json!({"ports": [{"containerPort": 80, "name": "a", "protocol": "TCP", "hostIP": "x"}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 81}]});
    assert_eq!(merged, expected);
}

mod laws {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::merge;

    /// Pieces of Pod templates, with few names so that they meet.
    fn piece() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(1)), Just(json!("a")), Just(json!(true))];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let named = (prop::sample::select(vec!["x", "y"]), inner.clone())
                .prop_map(|(name, value)| json!({"name": name, "value": value}));
            let lists = prop::collection::btree_map(
                prop::sample::select(vec!["x", "y"]),
                named.clone(),
                0..3,
            )
            .prop_map(|entries| {
                let entries = entries.into_iter().map(|(name, mut entry)| {
                    entry["name"] = json!(name);
                    entry
                });
                Value::Array(entries.collect())
            });
            prop_oneof![
                prop::collection::btree_map(prop::sample::select(vec!["p", "q", "r"]), inner, 0..3)
                    .prop_map(|members| {
                        Value::Object(
                            members
                                .into_iter()
                                .map(|(key, value)| (key.to_owned(), value))
                                .collect::<Map<_, _>>(),
                        )
                    }),
                (
                    prop::sample::select(vec!["containers", "env", "volumes"]),
                    lists
                )
                    .prop_map(|(field, list)| json!({field: list})),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map(prop::sample::select(vec!["spec", "p", "q"]), piece(), 0..3)
            .prop_map(|members| {
                Value::Object(
                    members
                        .into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect(),
                )
            })
    }

    proptest! {
        /// Rendering again changes nothing.
        #[test]
        fn a_patch_that_was_merged_changes_nothing_more(base in object(), patch in object()) {
            let once = merge(base, &patch);
            prop_assert_eq!(merge(once.clone(), &patch), once);
        }

        #[test]
        fn nothing_over_something_is_something(base in object()) {
            prop_assert_eq!(merge(base.clone(), &json!({})), base);
        }

        #[test]
        fn something_over_itself_is_itself(base in object()) {
            prop_assert_eq!(merge(base.clone(), &base), base);
        }
    }
}
