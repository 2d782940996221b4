//! Every CEL rule of both definitions is broken by a manifest.
//!
//! Parts of a job repeat others (its own pool, the data sets of an evaluation). Their manifests are made from those of the originals.

use std::collections::BTreeSet;

use rollout_operator::api::{crd, validate};
use serde_json::{Value, json};

use crate::manifests::{changes, fixture, objects};

/// A rule, by the kind and place that it is about and what it says.
type Rule = (String, String, String);

fn rules_of(kind: &str, schema: &Value, at: &str, rules: &mut BTreeSet<Rule>) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let field = rule["fieldPath"].as_str().unwrap_or_default();
        let path = format!("{at}{field}").trim_start_matches('.').to_owned();
        let message = rule["message"].as_str().unwrap_or_default().to_owned();
        assert!(
            rules.insert((kind.to_owned(), path, message)),
            "a rule is there twice"
        );
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        rules_of(kind, property, &format!("{at}.{name}"), rules);
    }
    for keyword in ["items", "additionalProperties"] {
        if schema[keyword].is_object() {
            rules_of(kind, &schema[keyword], &format!("{at}[]"), rules);
        }
    }
}

fn all_rules() -> BTreeSet<Rule> {
    let mut rules = BTreeSet::new();
    for (_, definition) in crd::all() {
        let kind = definition["spec"]["names"]["kind"]
            .as_str()
            .unwrap()
            .to_owned();
        rules_of(&kind, crd::schema(&definition), "", &mut rules);
    }
    rules
}

fn broken_by(object: &Value, old: Option<&Value>) -> Vec<Rule> {
    let violations = match old {
        Some(old) => validate::validate_update(object, old),
        None => validate::validate(object),
    };
    let index = regex::Regex::new(r"\[\d+\]").unwrap();
    violations
        .into_iter()
        .map(|violation| {
            let kind = object["kind"].as_str().unwrap().to_owned();
            let path = index.replace_all(&violation.path, "[]").into_owned();
            (kind, path, violation.message)
        })
        .collect()
}

/// A job that has the pool for its own.
fn with_own_pool(pool: &Value) -> Value {
    json!({
        "apiVersion": "rollout-operator.dev/v1alpha1", "kind": "RolloutJob", "metadata": {"name": "own-pool"},
        "spec": {
            "pool": pool["spec"], "dataset": {"inline": [{"prompt": "hi"}]}, "rollout": {"batchSize": 1},
            "sampling": {"maxNewTokens": 1}, "generate": {"singleTurn": {}}, "output": {"url": "file:///out"},
        },
    })
}

/// The job with its data set, sampling and reward in an evaluation too.
fn with_evaluation(job: &Value) -> Value {
    let mut job = job.clone();
    let mut set = json!({"name": "same"});
    for part in ["dataset", "sampling", "reward"] {
        if let Some(value) = job["spec"].get(part) {
            set[part] = value.clone();
        }
    }
    job["spec"]["evaluation"] = json!({"datasets": [set]});
    job
}

#[test]
fn every_rule_is_broken_by_a_manifest() {
    let mut missing = all_rules();
    assert!(missing.len() > 100);
    for object in objects("bad") {
        let variant = match object["kind"].as_str() {
            Some("SGLangPool") => with_own_pool(&object),
            _ => with_evaluation(&object),
        };
        for object in [object, variant] {
            for rule in broken_by(&object, None) {
                missing.remove(&rule);
            }
        }
    }
    for change in changes() {
        for rule in broken_by(&change.new, Some(&change.old)) {
            missing.remove(&rule);
        }
    }
    assert_eq!(
        missing,
        BTreeSet::new(),
        "no manifest in {} breaks these",
        fixture("").display()
    );
}

#[test]
fn every_manifest_in_bad_breaks_a_rule_of_its_definition() {
    let rules = all_rules();
    for object in objects("bad") {
        let broken = broken_by(&object, None);
        assert!(
            broken.iter().any(|rule| rules.contains(rule)),
            "{} breaks no rule: {broken:?}",
            object["metadata"]["name"]
        );
    }
}
