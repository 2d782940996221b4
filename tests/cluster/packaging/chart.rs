//! Every combination of the chart's switches renders, and the API server takes what it renders.
//!
//! What a template renders depends on the switches that it names, or that the helpers name, and on no other. So all combinations of those,
//! template by template, give every object that all combinations of all switches could give.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::tools::{
    NAMESPACE, RELEASE, chart, file, helm, kubectl, kubectl_with, monitoring, nothing_installed,
    run_script,
};

/// A value that chooses what is rendered: its field, and what it is set to (nothing: what the chart has).
#[derive(Clone)]
struct Switch {
    field: String,
    settings: [Option<String>; 2],
}

/// The booleans of the schema, and two values that are none and choose all the same.
fn switches() -> Vec<Switch> {
    fn booleans(schema: &Value, path: &str, found: &mut Vec<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if field["type"] == "boolean" {
                found.push(path);
            } else {
                booleans(field, &path, found);
            }
        }
    }
    let schema =
        std::fs::read_to_string(file("charts/rollout-operator/values.schema.json")).unwrap();
    let mut fields = Vec::new();
    booleans(&serde_json::from_str(&schema).unwrap(), "", &mut fields);
    let boolean = |field: String| Switch {
        settings: ["false", "true"].map(|value| Some(format!("{}={value}", &field[1..]))),
        field,
    };
    let given = |field: &str, value: &str| Switch {
        settings: [None, Some(format!("{}={value}", &field[1..]))],
        field: field.to_owned(),
    };
    let mut switches: Vec<Switch> = fields.into_iter().map(boolean).collect();
    switches.push(given(".namespaces", "{default,kube-public}"));
    switches.push(given(".key.existingSecret", "own"));
    switches
}

/// Whether a template reads a field, alone or with what it is a part of.
fn names(template: &str, field: &str) -> bool {
    let ends = field
        .match_indices('.')
        .map(|(at, _)| at)
        .skip(1)
        .chain([field.len()]);
    ends.map(|end| format!(".Values{}", &field[..end]))
        .any(|path| {
            let goes_on =
                |after: &str| after.starts_with(|next: char| next.is_alphanumeric() || next == '.');
            template
                .match_indices(&path)
                .any(|(at, _)| !goes_on(&template[at + path.len()..]))
        })
}

/// All combinations of these, as values for Helm.
fn combinations(switches: &[Switch]) -> Vec<String> {
    let all = 0_usize..1 << switches.len();
    all.map(|bits| values(switches, |index| bits >> index & 1))
        .collect()
}

/// Each switch set to the one or the other of its settings.
fn values(switches: &[Switch], which: impl Fn(usize) -> usize) -> String {
    let switches = switches.iter().enumerate();
    let settings = switches.filter_map(|(index, switch)| switch.settings[which(index)].clone());
    settings.collect::<Vec<_>>().join(",")
}

/// Template by template.
fn value_sets() -> BTreeSet<String> {
    let switches = switches();
    let mut unread: Vec<Switch> = switches.clone();
    let mut sets = BTreeSet::new();
    let folder = file("charts/rollout-operator/templates");
    let text = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    let helpers = text("_helpers.tpl");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if std::path::Path::new(&name)
            .extension()
            .is_none_or(|extension| extension != "yaml")
        {
            continue;
        }
        let template = helpers.clone() + &text(&name);
        let reads = |switch: &Switch| names(&template, &switch.field);
        let read: Vec<Switch> = switches
            .iter()
            .filter(|switch| reads(switch))
            .cloned()
            .collect();
        sets.extend(combinations(&read));
        unread.retain(|switch| !reads(switch));
    }
    let unread: Vec<_> = unread.into_iter().map(|switch| switch.field).collect();
    assert!(unread.is_empty(), "no template reads {unread:?}");
    sets.extend([values(&switches, |_| 0), values(&switches, |_| 1)]);
    sets
}

async fn render(values: &str) -> Vec<String> {
    let text = helm(&[
        "template",
        RELEASE,
        &chart(),
        "--namespace",
        NAMESPACE,
        "--set",
        values,
    ])
    .await;
    serde_yaml::Deserializer::from_str(&text)
        .map(|document| {
            Value::deserialize(document).unwrap_or_else(|error| panic!("{values}: {error}"))
        })
        .filter(|document| !document.is_null())
        .map(|document| document.to_string())
        .collect()
}

/// What all sets of values render, each object once.
async fn render_all(sets: &[String]) -> BTreeSet<String> {
    let mut workers = JoinSet::new();
    for part in sets.chunks(sets.len().div_ceil(3)) {
        let part = part.to_vec();
        workers.spawn(async move {
            let mut objects = BTreeSet::new();
            for values in part {
                objects.extend(render(&values).await);
            }
            objects
        });
    }
    workers.join_all().await.into_iter().flatten().collect()
}

#[tokio::test]
async fn every_combination_of_switches_is_taken_by_the_server() {
    nothing_installed().await;
    let sets: Vec<String> = value_sets().into_iter().collect();
    assert!(sets.len() > 50, "{}", sets.len());
    let objects = render_all(&sets).await;
    assert!(objects.len() > 20, "{}", objects.len());

    kubectl(&["create", "namespace", NAMESPACE]).await;
    kubectl(&["create", "--save-config", "-f", &monitoring()]).await;
    let items: Vec<&str> = objects.iter().map(String::as_str).collect();
    let taken = kubectl_with(
        &["apply", "--dry-run=server", "--validate=strict", "-f", "-"],
        &items.join("\n---\n"),
    )
    .await;
    assert_eq!(taken.lines().count(), objects.len(), "{taken}");
    kubectl(&["delete", "-f", &monitoring()]).await;
    kubectl(&["delete", "namespace", NAMESPACE]).await;
}

#[tokio::test]
async fn every_list_and_map_reaches_the_pod() {
    nothing_installed().await;
    let values = serde_json::json!({
        "crds": {"enabled": false},
        "image": {"repository": "registry.invalid/op", "digest": format!("sha256:{}", "0".repeat(64)), "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "replicas": 3,
        "serviceAccount": {"annotations": {"a": "b"}},
        "networkPolicy": {"enabled": true, "from": [{"namespaceSelector": {}}]},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "t", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}]}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}],
        "podLabels": {"team": "a", "app.kubernetes.io/name": "mine"},
        "podAnnotations": {"note": "b"},
        "extraArgs": ["--more=1"],
        "extraEnv": [{"name": "MORE", "value": "1"}],
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("values.json");
    std::fs::write(&path, values.to_string()).unwrap();
    let text = helm(&[
        "template",
        RELEASE,
        &chart(),
        "--namespace",
        "default",
        "--values",
        path.to_str().unwrap(),
    ])
    .await;
    kubectl_with(
        &["apply", "--dry-run=server", "--validate=strict", "-f", "-"],
        &text,
    )
    .await;
    let deployment = serde_yaml::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap())
        .find(|document| document["kind"] == "Deployment")
        .unwrap();
    assert_eq!(deployment["spec"]["replicas"], values["replicas"]);
    let pod = &deployment["spec"]["template"];
    for field in [
        "imagePullSecrets",
        "priorityClassName",
        "nodeSelector",
        "tolerations",
        "affinity",
        "topologySpreadConstraints",
    ] {
        assert_eq!(pod["spec"][field], values[field], "{field}");
    }
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["team"], "a");
    // What the Deployment selects by is not for others to change.
    assert_eq!(labels["app.kubernetes.io/name"], "rollout-operator");
    assert_eq!(pod["metadata"]["annotations"]["note"], "b");
    let controller = &pod["spec"]["containers"][0];
    assert_eq!(
        controller["image"],
        format!("registry.invalid/op@sha256:{}", "0".repeat(64)).as_str()
    );
    assert_eq!(controller["imagePullPolicy"], "Always");
    assert_eq!(
        controller["args"].as_array().unwrap().last().unwrap(),
        "--more=1"
    );
    assert_eq!(
        controller["env"].as_array().unwrap().last().unwrap(),
        &values["extraEnv"][0]
    );
}

#[tokio::test]
async fn what_is_rendered_is_checked_in() {
    run_script("scripts/render", &["--check"]).await;
}
