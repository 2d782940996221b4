//! `manifests/install.yaml`: what a cluster gets, and what the operator may do there.

use std::collections::{BTreeMap, BTreeSet};

use rollout_operator::api::crd;
use rollout_operator::resources::Kind;
use serde_json::Value;

use super::documents;

const INSTALL: &str = "manifests/install.yaml";

fn all() -> Vec<Value> {
    documents(INSTALL)
}

fn of_kind(kind: &str) -> Vec<Value> {
    all()
        .into_iter()
        .filter(|object| object["kind"] == kind)
        .collect()
}

fn one(kind: &str, name: &str) -> Value {
    of_kind(kind)
        .into_iter()
        .find(|object| object["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn pod() -> Value {
    one("Deployment", "rollout-operator")["spec"]["template"]["spec"].clone()
}

/// Verbs by resource (`group/resource`), of rules without resource names.
fn granted(role: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let words = |value: &Value| -> Vec<String> {
        let words = value.as_array().unwrap().iter();
        words
            .map(|word| word.as_str().unwrap().to_owned())
            .collect()
    };
    let mut granted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in role["rules"].as_array().unwrap() {
        if !rule["resourceNames"].is_null() {
            continue;
        }
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                granted
                    .entry(format!("{group}/{resource}"))
                    .or_default()
                    .extend(words(&rule["verbs"]));
            }
        }
    }
    granted
}

#[test]
fn definitions_are_the_checked_in_ones() {
    for (file, definition) in crd::all() {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let installed = one("CustomResourceDefinition", name);
        assert_eq!(
            installed["spec"], definition["spec"],
            "{file} is old: run scripts/render"
        );
    }
}

#[test]
fn the_namespace_comes_first_and_is_restricted() {
    let objects = all();
    assert_eq!(objects[0]["kind"], "Namespace");
    let labels = &objects[0]["metadata"]["labels"];
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    let own = &objects[0]["metadata"]["name"];
    let namespaced = [
        "Deployment",
        "Service",
        "ServiceAccount",
        "Role",
        "RoleBinding",
    ];
    for object in objects
        .iter()
        .filter(|object| namespaced.contains(&object["kind"].as_str().unwrap()))
    {
        assert_eq!(&object["metadata"]["namespace"], own, "{}", object["kind"]);
    }
}

/// The operator renders its own image into routers and drivers.
#[test]
fn one_image_is_run_and_handed_on() {
    let image = format!("localhost/rollout-operator:{}", env!("CARGO_PKG_VERSION"));
    let pod = pod();
    for container in ["containers", "initContainers"] {
        for container in pod[container].as_array().unwrap() {
            assert_eq!(container["image"], image.as_str());
            assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
            assert_eq!(container["resources"]["limits"]["cpu"], Value::Null);
        }
    }
    let arguments = pod["containers"][0]["args"].as_array().unwrap();
    assert!(arguments.contains(&Value::from(format!("--image={image}"))));
}

fn set(verbs: &[&str]) -> BTreeSet<String> {
    verbs.iter().map(|&verb| verb.to_owned()).collect()
}

/// What it makes, by its builders; its own kinds; and events.
#[test]
fn the_operator_may_what_it_does_and_nothing_else() {
    let made = set(&["get", "list", "watch", "create", "patch", "delete"]);
    let mut needed: BTreeMap<String, BTreeSet<String>> = Kind::ALL
        .into_iter()
        .map(|kind| {
            let group = kind
                .api_version()
                .rsplit_once('/')
                .map_or("", |(group, _)| group);
            (format!("{group}/{}", kind.plural()), made.clone())
        })
        .collect();
    // A job's agents go by one call.
    let pods = needed.get_mut("/pods").unwrap();
    pods.insert("deletecollection".to_owned());
    // Written, and never read.
    needed.insert("/secrets".to_owned(), set(&["create", "patch", "delete"]));
    // Finalizers are a patch; the job itself goes when its manifest says so. Users make jobs.
    needed.insert(
        "rollout-operator.dev/rolloutjobs".to_owned(),
        set(&["get", "list", "watch", "patch", "delete"]),
    );
    for kind in ["sglangpools", "rolloutjobs"] {
        needed.insert(
            format!("rollout-operator.dev/{kind}/status"),
            set(&["patch", "update"]),
        );
        // For owner references that hold up a deletion.
        needed.insert(
            format!("rollout-operator.dev/{kind}/finalizers"),
            set(&["update"]),
        );
    }
    // Listed by Pod: of a volume that cannot be mounted the kubelet tells nowhere else.
    needed.insert(
        "events.k8s.io/events".to_owned(),
        set(&["list", "create", "patch"]),
    );
    assert_eq!(granted(&one("ClusterRole", "rollout-operator")), needed);

    let own = BTreeMap::from([
        (
            "coordination.k8s.io/leases".to_owned(),
            set(&["get", "create", "update"]),
        ),
        // Its key, which is read by name.
        ("/secrets".to_owned(), set(&["create"])),
    ]);
    assert_eq!(granted(&one("Role", "rollout-operator-own")), own);
}

#[test]
fn no_secret_can_be_read_but_its_own_key() {
    for role in [of_kind("ClusterRole"), of_kind("Role")].concat() {
        let name = role["metadata"]["name"].as_str().unwrap();
        for (resource, verbs) in granted(&role) {
            assert!(
                !resource.contains('*') && !verbs.contains("*"),
                "{name}: {resource}"
            );
            for banned in ["bind", "escalate", "impersonate"] {
                assert!(!verbs.contains(banned), "{name} may {banned} {resource}");
            }
            if resource == "/secrets" {
                for verb in ["get", "list", "watch", "deletecollection"] {
                    assert!(!verbs.contains(verb), "{name} may {verb} every Secret");
                }
            }
        }
        for rule in role["rules"].as_array().unwrap() {
            if !rule["resourceNames"].is_null() {
                assert_eq!(
                    rule["resourceNames"],
                    serde_json::json!(["rollout-operator-key"]),
                    "{name}"
                );
                assert_eq!(rule["verbs"], serde_json::json!(["get"]), "{name}");
            }
        }
    }
    let mounts_no_other = pod()["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .all(|volume| volume["secret"].is_null());
    assert!(mounts_no_other);
}

/// Nothing of Helm's is left in what is applied without it.
#[test]
fn plain_manifests_name_no_helm() {
    assert!(!super::text(INSTALL).to_lowercase().contains("helm"));
}
