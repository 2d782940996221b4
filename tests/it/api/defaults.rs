//! Defaults: the schema's are serde's, and nothing is lost on the way through the types.

use rollout_operator::api::crd;
use rollout_operator::api::job::{RolloutJob, RolloutJobSpec};
use rollout_operator::api::pool::{SGLangPool, SGLangPoolSpec};
use rollout_operator::api::validate::with_defaults;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::manifests::objects;

/// An object that has every optional object, and in each of them only what is required.
fn minimal(schema: &Value) -> Value {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return json!({});
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let mut object = Map::new();
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let needed = required.contains(&Value::from(name.as_str()));
                if needed || property["type"] == "object" {
                    object.insert(name.clone(), minimal(property));
                }
            }
            Value::Object(object)
        }
        Some("array") => json!([minimal(&schema["items"])]),
        Some("integer" | "number") => schema["minimum"].clone(),
        Some("boolean") => json!(false),
        _ if schema["enum"].is_array() => schema["enum"][0].clone(),
        _ => json!("a.b"),
    }
}

fn same_defaults<S: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(
    kind: &str,
    definition: &Value,
) {
    let spec = minimal(&crd::schema(definition)["properties"]["spec"]);
    let object = json!({
        "apiVersion": "rollout-operator.dev/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec,
    });
    let stored = with_defaults(&object);
    assert_ne!(stored, object, "the schema has defaults");
    let from_file: S = serde_json::from_value(object["spec"].clone()).unwrap();
    let from_server: S = serde_json::from_value(stored["spec"].clone()).unwrap();
    assert_eq!(from_file, from_server);
    // Every default of the schema is what serde writes in its place.
    let written = serde_json::to_value(&from_file).unwrap();
    assert_eq!(
        with_defaults(&json!({
            "apiVersion": "rollout-operator.dev/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": written,
        }))["spec"],
        written,
        "serde leaves out what the schema would fill in"
    );
}

#[test]
fn the_schema_and_serde_have_the_same_defaults() {
    same_defaults::<SGLangPoolSpec>("SGLangPool", &crd::pool());
    same_defaults::<RolloutJobSpec>("RolloutJob", &crd::job());
}

#[test]
fn a_status_that_nobody_wrote_is_the_schemas_default() {
    let pool = SGLangPool::new("x", serde_json::from_value(json!({})).unwrap());
    let object =
        json!({"apiVersion": "rollout-operator.dev/v1alpha1", "kind": "SGLangPool", "spec": {}});
    assert_eq!(
        with_defaults(&object)["status"],
        json!({"observedGeneration": -1})
    );
    assert_eq!(pool.status.unwrap_or_default().observed_generation, -1);
}

/// Whether everything in `part` is in `whole`.
fn contains(whole: &Value, part: &Value, at: &str) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (name, inner) in part {
                let at = format!("{at}.{name}");
                let empty = inner == &json!({}) || inner == &json!([]) || inner == &json!(false);
                match whole.get(name) {
                    Some(found) => contains(found, inner, &at),
                    None => assert!(empty, "{at} is lost"),
                }
            }
        }
        (Value::Array(whole), Value::Array(part)) => {
            assert_eq!(whole.len(), part.len(), "{at}");
            for (index, (found, inner)) in whole.iter().zip(part).enumerate() {
                contains(found, inner, &format!("{at}[{index}]"));
            }
        }
        _ if whole.is_number() => assert_eq!(whole.as_f64(), part.as_f64(), "{at}"),
        // A quantity is a text, however it was written.
        _ => assert_eq!(
            whole,
            &if part.is_number() {
                json!(part.to_string())
            } else {
                part.clone()
            },
            "{at}"
        ),
    }
}

#[test]
fn every_field_survives_the_way_through_the_types() {
    for folder in ["good", "unsupported"] {
        for object in objects(folder) {
            let written = match object["kind"].as_str() {
                Some("RolloutJob") => {
                    json!(serde_json::from_value::<RolloutJob>(object.clone()).unwrap())
                }
                Some("SGLangPool") => {
                    json!(serde_json::from_value::<SGLangPool>(object.clone()).unwrap())
                }
                _ => continue,
            };
            contains(&written["spec"], &object["spec"], "spec");
        }
    }
}

#[test]
fn fields_of_the_future_survive_in_templates() {
    let template = json!({"spec": {"containers": [{"name": "engine", "fieldOfTheFuture": {"deep": [1, 2.5, null]}}]}});
    let spec = json!({"engine": {"simulator": {}, "template": template}});
    let typed: SGLangPoolSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(
        serde_json::to_value(typed).unwrap()["engine"]["template"],
        template
    );
}

#[test]
fn sampling_of_an_evaluation_is_the_jobs_with_its_own_on_top() {
    let job: RolloutJob = serde_json::from_value(
        objects("unsupported")
            .into_iter()
            .find(|o| o["kind"] == "RolloutJob")
            .unwrap(),
    )
    .unwrap();
    let set = &job.spec.evaluation.as_ref().unwrap().datasets[0];
    let sampling = set.sampling.as_ref().unwrap().over(&job.spec.sampling);
    assert!((sampling.temperature - 0.6).abs() < 1e-9);
    assert_eq!(sampling.max_new_tokens, Some(4096));
    let untouched =
        rollout_operator::api::job::SamplingOverride::default().over(&job.spec.sampling);
    assert_eq!(untouched, job.spec.sampling);
}
