//! The chart's files: versions, values, definitions, examples.

use std::collections::BTreeSet;

use rollout_operator::api::{crd, validate};
use serde_json::Value;

use super::{text, yaml};

const CHART: &str = "charts/rollout-operator";

fn annotation(name: &str) -> Value {
    let chart = yaml(&format!("{CHART}/Chart.yaml"));
    let text = chart["annotations"][name].as_str().unwrap().to_owned();
    serde_yaml::from_str(&text).unwrap()
}

#[test]
fn chart_and_program_have_one_version() {
    let chart = yaml(&format!("{CHART}/Chart.yaml"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["description"], env!("CARGO_PKG_DESCRIPTION"));
}

#[test]
fn the_chart_has_the_definitions_that_are_in_force() {
    for (file, _) in crd::all() {
        assert!(
            text(&format!("{CHART}/files/crds/{file}")) == text(&format!("crds/{file}")),
            "the chart's {file} is old: run scripts/render"
        );
    }
    let folder = format!("{}/{CHART}/files/crds", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(
        std::fs::read_dir(folder).unwrap().count(),
        crd::all().into_iter().count()
    );
}

/// The template puts labels and the annotation that keeps a definition where this line is.
#[test]
fn definitions_have_the_line_that_the_template_replaces() {
    for (file, definition) in crd::all() {
        let line = format!(
            "\nmetadata: {{name: {}}}\n",
            definition["metadata"]["name"].as_str().unwrap()
        );
        let text = text(&format!("crds/{file}"));
        assert_eq!(text.matches(&line).count(), 1, "{file}");
    }
}

/// Every field, as a path; lists and free maps are one field.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                fields(value, &format!("{path}.{name}"), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

fn schema_fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    match schema["properties"].as_object() {
        Some(properties) => {
            assert_eq!(schema["additionalProperties"], false, "{path}");
            for (name, schema) in properties {
                schema_fields(schema, &format!("{path}.{name}"), found);
            }
        }
        None => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn values_and_their_schema_have_the_same_fields() {
    let mut values = yaml(&format!("{CHART}/values.yaml"));
    // Free maps of quantities.
    for kind in ["requests", "limits"] {
        values["resources"][kind] = Value::Array(Vec::new());
    }
    let schema: Value =
        serde_json::from_str(&text(&format!("{CHART}/values.schema.json"))).unwrap();
    let (mut written, mut declared) = (BTreeSet::new(), BTreeSet::new());
    fields(&values, "", &mut written);
    schema_fields(&schema, "", &mut declared);
    // Helm's own, and a field of every Kubernetes `resources`.
    declared.remove(".global");
    declared.remove(".resources.claims");
    assert_eq!(written, declared);
}

#[test]
fn every_value_is_used_by_a_template() {
    let folder = format!("{}/{CHART}/templates", env!("CARGO_MANIFEST_DIR"));
    let templates: String = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let mut written = BTreeSet::new();
    fields(&yaml(&format!("{CHART}/values.yaml")), "", &mut written);
    for path in written {
        // A template may take the whole block: `.Values.resources`, or `$monitor` for `.Values.metrics.serviceMonitor`.
        let last = path.rsplit('.').next().unwrap();
        let block = path.split('.').nth(1).unwrap();
        assert!(
            templates.contains(&format!(".Values{path}"))
                || templates.contains(&format!("$monitor.{last}"))
                || templates.contains(&format!("toYaml .Values.{block}")),
            "no template uses {path}"
        );
    }
}

#[test]
fn examples_for_artifact_hub_are_what_the_definitions_take() {
    let examples = annotation("artifacthub.io/crdsExamples");
    let mut kinds = BTreeSet::new();
    for example in examples.as_array().unwrap() {
        assert_eq!(validate::validate(example), [], "{}", example["kind"]);
        kinds.insert(example["kind"].as_str().unwrap().to_owned());
    }
    let declared: BTreeSet<String> = crd::all()
        .into_iter()
        .map(|(_, definition)| {
            definition["spec"]["names"]["kind"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(kinds, declared);
    let listed = annotation("artifacthub.io/crds");
    let listed: BTreeSet<String> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(listed, declared);
}
