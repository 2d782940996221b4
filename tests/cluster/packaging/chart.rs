//! Every combination of the chart's switches renders, and the API server takes what it renders.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::tools::{
    NAMESPACE, RELEASE, chart, file, helm, kubectl, kubectl_with, monitoring, nothing_installed,
};

/// Values that are no booleans, and choose what is rendered all the same.
const CHOICES: [&str; 2] = ["namespaces={default,kube-public}", "key.existingSecret=own"];

/// The booleans of the schema.
fn switches(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        if field["type"] == "boolean" {
            found.push(path);
        } else {
            switches(field, &path, found);
        }
    }
}

/// One set of values for every combination of these.
fn combinations(switches: &[String], choices: &[&str]) -> Vec<String> {
    let count = switches.len() + choices.len();
    (0_u32..1 << count)
        .map(|bits| {
            let is_on = |index: usize| bits & (1 << index) != 0;
            let switched = switches
                .iter()
                .enumerate()
                .map(|(index, path)| format!("{path}={}", is_on(index)));
            let chosen = choices
                .iter()
                .enumerate()
                .filter(|(index, _)| is_on(switches.len() + index));
            switched
                .chain(chosen.map(|(_, choice)| (*choice).to_owned()))
                .collect::<Vec<_>>()
                .join(",")
        })
        .collect()
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
    let schema =
        std::fs::read_to_string(file("charts/rollout-operator/values.schema.json")).unwrap();
    let mut all = Vec::new();
    switches(&serde_json::from_str(&schema).unwrap(), "", &mut all);
    // Definitions are slow to render, and depend on nothing else.
    let (definitions, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|path| path.starts_with("crds."));
    let mut sets = combinations(&definitions, &[]);
    sets.extend(
        combinations(&others, &CHOICES)
            .into_iter()
            .map(|values| format!("crds.enabled=false,{values}")),
    );
    assert!(sets.len() > 1000, "{}", sets.len());

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
