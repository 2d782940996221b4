//! What holds for every object of every spec.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use rollout_operator::api::meta::labels;
use rollout_operator::api::pool::SGLangPool;
use rollout_operator::resources::{Kind, Object, Owner};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{everything, rendering};

/// Every object with its owner.
fn all() -> Vec<(Owner, Object)> {
    let (mut pools, cases) = everything();
    let mut found = Vec::new();
    for case in &cases {
        found.extend(
            case.all()
                .into_iter()
                .map(|object| (case.job.owner.clone(), object)),
        );
        if let Some(own) = &case.own_pool {
            pools.push(super::Resource::of(&own.value).unwrap());
        }
    }
    for mut pool in pools {
        // Policies of routers and data of oracles are refused, each in a test of its own.
        if pool.spec["router"].is_object() {
            pool.spec["router"]
                .as_object_mut()
                .unwrap()
                .remove("policy");
        }
        if pool
            .spec
            .pointer("/engine/simulator/replies/oracle")
            .is_some()
        {
            pool.spec["engine"]["simulator"]["replies"]["oracle"]["dataset"] =
                json!({"configMap": {"name": "p", "key": "k"}});
        }
        let objects = pool.pool_objects().unwrap().into_objects();
        found.extend(
            objects
                .into_iter()
                .map(|object| (pool.owner.clone(), object)),
        );
    }
    assert!(found.len() > 80, "{}", found.len());
    found
}

#[test]
fn every_kind_is_there() {
    let kinds: BTreeSet<_> = all().iter().map(|(_, object)| object.kind()).collect();
    assert_eq!(kinds, BTreeSet::from(Kind::ALL));
}

#[test]
fn is_where_its_owner_is_and_found_by_its_labels() {
    for (owner, object) in all() {
        let place = format!("{object:?}");
        assert_eq!(
            object.value["apiVersion"],
            object.kind().api_version(),
            "{place}"
        );
        assert_eq!(object.value["kind"], object.kind().name(), "{place}");
        assert_eq!(object.namespace(), owner.namespace, "{place}");
        assert!(object.name().starts_with(&owner.name), "{place}");
        assert!(object.name().len() <= 63, "{place}");
        assert_eq!(
            object.label(labels::APP_MANAGED_BY),
            Some(labels::OPERATOR),
            "{place}"
        );
        assert_eq!(
            object.label(labels::APP_INSTANCE),
            Some(owner.name.as_str()),
            "{place}"
        );
        assert_eq!(object.label(labels::APP_VERSION), Some("1.2.3"), "{place}");
        let is_of_pool = owner.kind == "SGLangPool";
        if is_of_pool {
            assert_eq!(
                object.label(labels::POOL),
                Some(owner.name.as_str()),
                "{place}"
            );
        } else {
            assert_eq!(
                object.label(labels::JOB_UID),
                Some(owner.uid.as_str()),
                "{place}"
            );
            assert_eq!(
                object.label(labels::JOB),
                Some(owner.name.as_str()),
                "{place}"
            );
        }
        // Foreground deletion removes what is owned at once: of a job only the driver may go that way.
        let is_driver =
            object.label(labels::COMPONENT) == Some("driver") && object.kind() == Kind::Pod;
        let references = &object.value["metadata"]["ownerReferences"];
        if is_of_pool || is_driver {
            let expected = json!([{"apiVersion": "rollout-operator.dev/v1alpha1", "kind": owner.kind, "name": owner.name,
                "uid": owner.uid, "controller": true, "blockOwnerDeletion": true}]);
            assert_eq!(references, &expected, "{place}");
        } else {
            assert!(references.is_null(), "{place}");
        }
    }
}

#[test]
fn names_are_unique_by_kind_and_namespace() {
    let mut seen = BTreeSet::new();
    let (pools, cases) = everything();
    let jobs = cases.iter().flat_map(super::Case::all);
    let pools = pools.iter().filter_map(|pool| pool.pool_objects().ok());
    for object in jobs.chain(pools.flat_map(super::pool::PoolObjects::into_objects)) {
        let place = (
            object.kind(),
            object.namespace().to_owned(),
            object.name().to_owned(),
        );
        assert!(seen.insert(place), "{object:?} is there twice");
    }
}

#[test]
fn labels_and_annotations_are_short_texts() {
    let value = regex::Regex::new("^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$").unwrap();
    for (_, object) in all() {
        let template = &object.value["spec"]["template"]["metadata"];
        for metadata in [&object.value["metadata"], template] {
            for (name, label) in metadata["labels"].as_object().into_iter().flatten() {
                assert!(
                    label.as_str().is_some_and(|label| value.is_match(label)),
                    "{object:?}: {name}: {label}"
                );
            }
            for (name, text) in metadata["annotations"].as_object().into_iter().flatten() {
                assert!(text.is_string(), "{object:?}: {name}: {text}");
            }
        }
    }
}

/// Pods, wherever they are in an object.
fn pod(object: &Object) -> Option<&Value> {
    match object.kind() {
        Kind::Pod => Some(&object.value["spec"]),
        Kind::Deployment => Some(&object.value["spec"]["template"]["spec"]),
        _ => None,
    }
}

#[test]
fn no_pod_holds_credentials_of_the_cluster() {
    for (_, object) in all() {
        let Some(pod) = pod(&object) else { continue };
        assert_eq!(pod["automountServiceAccountToken"], false, "{object:?}");
        assert_eq!(pod["enableServiceLinks"], false, "{object:?}");
        assert!(
            !pod.to_string().contains("serviceAccountToken\":{"),
            "{object:?}"
        );
        assert_eq!(
            pod["imagePullSecrets"],
            json!([{"name": "pull"}]),
            "{object:?}"
        );
    }
}

#[test]
fn containers_with_our_image_are_restricted() {
    let mut seen = 0;
    for (_, object) in all() {
        let Some(pod) = pod(&object) else { continue };
        for list in ["initContainers", "containers"] {
            for container in pod[list].as_array().into_iter().flatten() {
                if container["image"] != rendering().image {
                    continue;
                }
                seen += 1;
                let place = format!("{object:?} {}", container["name"]);
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false, "{place}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{place}");
                assert_eq!(context["capabilities"]["drop"], json!(["ALL"]), "{place}");
                assert_eq!(
                    context["seccompProfile"]["type"], "RuntimeDefault",
                    "{place}"
                );
                let who = if context["runAsUser"].is_null() {
                    &pod["securityContext"]
                } else {
                    context
                };
                let is_root_by_choice = object.name().starts_with("any-harness-agent");
                assert_eq!(who["runAsNonRoot"], !is_root_by_choice, "{place}");
            }
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn every_mount_has_its_volume_and_every_volume_its_mount() {
    for (_, object) in all() {
        let Some(pod) = pod(&object) else { continue };
        let names = |list: &Value, key: &str| -> Vec<String> {
            let entries = list.as_array().into_iter().flatten();
            entries
                .map(|entry| entry[key].as_str().unwrap().to_owned())
                .collect()
        };
        let volumes = names(&pod["volumes"], "name");
        let unique: BTreeSet<_> = volumes.iter().cloned().collect();
        assert_eq!(unique.len(), volumes.len(), "{object:?}: {volumes:?}");
        let mut used = BTreeSet::new();
        let mut containers = BTreeSet::new();
        for list in ["initContainers", "containers"] {
            for container in pod[list].as_array().into_iter().flatten() {
                let paths = names(&container["volumeMounts"], "mountPath");
                assert_eq!(
                    paths.iter().collect::<BTreeSet<_>>().len(),
                    paths.len(),
                    "{object:?}"
                );
                let variables = names(&container["env"], "name");
                assert_eq!(
                    variables.iter().collect::<BTreeSet<_>>().len(),
                    variables.len(),
                    "{object:?}: {variables:?}"
                );
                used.extend(names(&container["volumeMounts"], "name"));
                let name = container["name"].as_str().unwrap().to_owned();
                assert!(
                    container["image"].is_string(),
                    "{object:?}: {name} has no image"
                );
                assert!(
                    containers.insert(name),
                    "{object:?}: a container is there twice"
                );
            }
        }
        assert_eq!(used, unique, "{object:?}");
    }
}

/// `object` as its type reads it. Everything that it has comes out again: a field in a wrong place would be lost.
fn keeps<K: DeserializeOwned + Serialize>(object: &Object) {
    let typed: K = serde_json::from_value(object.value.clone())
        .unwrap_or_else(|error| panic!("{object:?}: {error}"));
    let back = serde_json::to_value(&typed).unwrap();
    lost(&object.value, &back, &format!("{object:?}"));
}

fn lost(before: &Value, after: &Value, at: &str) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                match after.get(key) {
                    Some(kept) => lost(value, kept, &format!("{at}.{key}")),
                    // Empty lists and maps are as good as none.
                    None => assert!(is_empty(value), "{at}.{key} is lost: {value}"),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            assert_eq!(before.len(), after.len(), "{at}");
            for (position, (before, after)) in before.iter().zip(after).enumerate() {
                lost(before, after, &format!("{at}[{position}]"));
            }
        }
        // A quantity that was written as a number is a text.
        (Value::Number(before), Value::String(after)) => {
            assert_eq!(&format!("{before}"), after, "{at}");
        }
        (before, after) => assert_eq!(before, after, "{at}"),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null => true,
        _ => false,
    }
}

#[test]
fn typed_objects_lose_nothing() {
    for (_, object) in all() {
        match object.kind() {
            Kind::ServiceAccount => keeps::<ServiceAccount>(&object),
            Kind::ConfigMap => keeps::<ConfigMap>(&object),
            Kind::Secret => keeps::<Secret>(&object),
            Kind::Service => keeps::<Service>(&object),
            Kind::NetworkPolicy => keeps::<NetworkPolicy>(&object),
            Kind::PodDisruptionBudget => keeps::<PodDisruptionBudget>(&object),
            Kind::PersistentVolumeClaim => keeps::<PersistentVolumeClaim>(&object),
            Kind::Deployment => keeps::<Deployment>(&object),
            Kind::Pod => keeps::<Pod>(&object),
            Kind::SGLangPool => keeps::<SGLangPool>(&object),
        }
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let texts = || -> Vec<String> {
        all()
            .iter()
            .map(|(_, object)| object.value.to_string())
            .collect()
    };
    assert_eq!(texts(), texts());
}

#[test]
fn nothing_has_what_the_server_would_drop() {
    fn no_nulls(value: &Value, at: &str) {
        match value {
            Value::Null => panic!("{at} is null"),
            Value::Object(members) => members
                .iter()
                .for_each(|(key, value)| no_nulls(value, &format!("{at}.{key}"))),
            Value::Array(items) => {
                assert!(!items.is_empty(), "{at} is empty: the server drops it");
                for value in items {
                    no_nulls(value, at);
                }
            }
            _ => {}
        }
    }
    for (_, object) in all() {
        assert!(object.value.get("status").is_none(), "{object:?}");
        no_nulls(&object.value, &format!("{object:?}"));
    }
}
