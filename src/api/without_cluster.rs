//! What of a job means nothing without a cluster, and how `rollout-operator local` takes it.
//!
//! A field that an agent runs as well without is a warning each; one without which it would run wrong is an error.

use serde_json::Value;

use super::job::{Plugins, RolloutJobSpec};
use super::manifest::path;
use super::validate::Violation;
use super::values::Template;

/// Fields of a container that are the same here. There are no images, so that nothing is expected of one.
const HONOURED: [&str; 8] = [
    "name",
    "image",
    "imagePullPolicy",
    "command",
    "args",
    "env",
    "envFrom",
    "workingDir",
];

/// What of a job is not the same without a cluster.
pub fn job(spec: &RolloutJobSpec) -> Vec<Violation> {
    let mut found = Vec::new();
    if spec.suspend {
        let message = "rollout-operator local does not run a suspended job: remove suspend: true to run it here";
        found.push(Violation::warning("spec.suspend", message));
    }
    if let Some(agentic) = &spec.generate.agentic {
        let at = "spec.generate.agentic.agent";
        if let Some((at, template)) = agentic.agent.own_template(at) {
            found.extend(pod(template, &at));
        }
    }
    if let Some(plugins) = &spec.plugins {
        found.extend(host(plugins));
    }
    found
}

fn pod(template: &Template, at: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    if template.0.contains_key("metadata") {
        found.push(meaningless(&format!("{at}.metadata")));
    }
    let at = format!("{at}.spec");
    let members = template.0.get("spec").and_then(Value::as_object);
    for (name, value) in members.into_iter().flatten() {
        let at = path::member(&at, name);
        if name != "containers" {
            found.push(meaningless(&at));
            continue;
        }
        for (position, one) in value.as_array().into_iter().flatten().enumerate() {
            let at = path::index(&at, position);
            if one["name"] == "agent" {
                found.extend(container(one, &at));
            } else {
                let message = "has no meaning without a cluster: only the container agent is run";
                found.push(Violation::warning(at, message));
            }
        }
    }
    found
}

fn host(plugins: &Plugins) -> Vec<Violation> {
    let mut found = Vec::new();
    if plugins.resources.is_some() {
        found.push(meaningless("spec.plugins.resources"));
    }
    for (position, variable) in plugins.env.iter().enumerate() {
        if let Some(Template(source)) = &variable.value_from {
            let at = format!("spec.plugins.env[{position}].valueFrom");
            found.extend(source_of_pod(&Value::Object(source.clone()), &at));
        }
    }
    if let Some(Template(own)) = &plugins.container {
        found.extend(container(
            &Value::Object(own.clone()),
            "spec.plugins.container",
        ));
    }
    found
}

fn container(container: &Value, at: &str) -> Vec<Violation> {
    let members = container.as_object().into_iter().flatten();
    let mut found: Vec<_> = members
        .filter(|(name, _)| !HONOURED.contains(&name.as_str()))
        .map(|(name, _)| meaningless(&path::member(at, name)))
        .collect();
    let variables = container["env"].as_array().into_iter().flatten();
    for (position, variable) in variables.enumerate() {
        let at = format!("{at}.env[{position}].valueFrom");
        found.extend(source_of_pod(&variable["valueFrom"], &at));
    }
    found
}

/// A variable that only a pod has.
fn source_of_pod(source: &Value, at: &str) -> Option<Violation> {
    let mut kinds = source.as_object()?.keys();
    let kind = kinds.find(|kind| !["secretKeyRef", "configMapKeyRef"].contains(&kind.as_str()))?;
    let message = "has no meaning without a cluster: write the value, or take it from a Secret or a ConfigMap";
    Some(Violation::error(path::member(at, kind), message))
}

fn meaningless(at: &str) -> Violation {
    Violation::warning(at, "has no meaning without a cluster, and is left out")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(more: &Value) -> Vec<String> {
        let mut spec = json!({
            "poolRef": {"name": "p"}, "dataset": {"inline": [{"prompt": "hi"}]}, "rollout": {"batchSize": 1},
            "generate": {"singleTurn": {}},
        });
        let members = spec.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        let spec: RolloutJobSpec = serde_json::from_value(spec).unwrap();
        let said = |violation: Violation| format!("{:?} {violation}", violation.severity);
        job(&spec).into_iter().map(said).collect()
    }

    #[test]
    fn every_field_that_is_left_out_is_named_once() {
        let template = json!({"spec": {
            "securityContext": {"runAsUser": 1}, "initContainers": [{"name": "fetch"}],
            "containers": [
                {"name": "agent", "image": "i", "command": ["a"], "workingDir": "/", "env": [{"name": "A", "value": "1"}], "resources": {}, "volumeMounts": []},
                {"name": "browser", "image": "b"},
            ],
        }});
        let said = said(
            &json!({"generate": {"agentic": {"agent": {"container": {"template": template}}}}}),
        );
        let at = "Warning spec.generate.agentic.agent.container.template.spec";
        let left_out = "has no meaning without a cluster";
        assert_eq!(said.len(), 5, "{said:#?}");
        for field in [
            "securityContext",
            "initContainers",
            "containers[0].resources",
            "containers[0].volumeMounts",
            "containers[1]",
        ] {
            let start = format!("{at}.{field}: {left_out}");
            assert!(
                said.iter().any(|line| line.starts_with(&start)),
                "{start}: {said:#?}"
            );
        }
    }

    #[test]
    fn what_only_a_pod_has_is_an_error() {
        let plugins = json!({
            "image": "i", "resources": {},
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "container": {"env": [{"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]},
        });
        let said = said(&json!({"plugins": plugins, "suspend": true}));
        let starts = [
            "Warning spec.suspend: ",
            "Warning spec.plugins.resources: ",
            "Error spec.plugins.env[1].valueFrom.fieldRef: ",
            "Error spec.plugins.container.env[0].valueFrom.resourceFieldRef: ",
        ];
        assert_eq!(said.len(), starts.len(), "{said:#?}");
        for (line, start) in said.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
    }
}
