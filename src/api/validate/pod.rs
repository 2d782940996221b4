//! Pod templates: their shape, and what may not be in them.
//!
//! A policy under training runs arbitrary commands in agent pods and will find what can be found. So templates of users' code may not open
//! the node; those of our own parts may, where an administrator lets them. No template gets credentials of the cluster.

use serde_json::{Map, Value};

use super::violation::Violation;
use super::{process, schemaless};
use crate::api::manifest::path;
use crate::api::meta::labels::RESERVED_PREFIX;
use crate::api::values::Template;

/// Whose code runs in a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Ours, or SGLang.
    Ours,
    /// The users': agents, sandboxes, verifiers.
    Users,
}

const CONTAINER_LISTS: [&str; 2] = ["containers", "initContainers"];

/// Shape and contents of a template.
pub(super) fn check(template: &Template, trust: Trust, at: &str) -> Vec<Violation> {
    let template = Value::Object(template.0.clone());
    let mut found = schemaless::pod_template(&template, at);
    if found.iter().any(Violation::is_error) {
        return found;
    }
    for section in ["labels", "annotations"] {
        let keys = template["metadata"][section]
            .as_object()
            .into_iter()
            .flat_map(Map::keys);
        for key in keys.filter(|key| key.starts_with(RESERVED_PREFIX)) {
            found.push(Violation::error(
                path::member(&format!("{at}.metadata.{section}"), key),
                format!("{RESERVED_PREFIX} is the operator's: remove it"),
            ));
        }
    }
    let spec = &template["spec"];
    for (path, container) in containers(spec, &format!("{at}.spec")) {
        found.extend(process::container(container, &path));
    }
    if spec["automountServiceAccountToken"] == true {
        found.push(Violation::error(
            format!("{at}.spec.automountServiceAccountToken"),
            "no pod of a rollout holds credentials of the cluster: remove it",
        ));
    }
    if trust == Trust::Users {
        found.extend(opens_the_node(spec, &format!("{at}.spec")));
    }
    found
}

fn opens_the_node(spec: &Value, at: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    let refuse = |path: String, what: &str| {
        Violation::error(
            path,
            format!("{what} would let an agent out of its pod: remove it"),
        )
    };
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec[field] == true {
            found.push(refuse(format!("{at}.{field}"), field));
        }
    }
    if spec["shareProcessNamespace"] == true {
        found.push(Violation::error(
            format!("{at}.shareProcessNamespace"),
            "an agent would see the launcher's processes and its token: remove it",
        ));
    }
    for (position, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        if volume.get("hostPath").is_some() {
            found.push(refuse(
                format!("{at}.volumes[{position}].hostPath"),
                "a hostPath volume",
            ));
        }
    }
    for (path, container) in containers(spec, at) {
        let security = &container["securityContext"];
        for field in ["privileged", "allowPrivilegeEscalation"] {
            if security[field] == true {
                found.push(refuse(format!("{path}.securityContext.{field}"), field));
            }
        }
        let ports = container["ports"].as_array().into_iter().flatten();
        for (number, port) in ports.enumerate() {
            if port["hostPort"].as_i64().is_some_and(|port| port > 0) {
                found.push(refuse(
                    format!("{path}.ports[{number}].hostPort"),
                    "a hostPort",
                ));
            }
        }
    }
    found
}

/// Every container with its path.
fn containers<'a>(spec: &'a Value, at: &str) -> Vec<(String, &'a Value)> {
    CONTAINER_LISTS
        .iter()
        .flat_map(|list| {
            spec[*list]
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
                .map(move |(position, container)| (format!("{at}.{list}[{position}]"), container))
        })
        .collect()
}

/// The template has a container of that name, with those fields.
pub(super) fn has_container(
    template: &Template,
    name: &str,
    fields: &[&str],
    at: &str,
) -> Vec<Violation> {
    let template = Value::Object(template.0.clone());
    let at = format!("{at}.spec.containers");
    let list = template["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten();
    let Some((position, container)) = list
        .enumerate()
        .find(|(_, container)| container["name"] == name)
    else {
        let message = format!(
            "needs a container called {name}, with its {}",
            fields.join(" and ")
        );
        return vec![Violation::error(at, message)];
    };
    fields
        .iter()
        .filter(|field| container.get(**field).is_none())
        .map(|field| {
            let at = format!("{at}[{position}].{field}");
            Violation::error(at, format!("is required of the container {name}"))
        })
        .collect()
}

/// No container has a name that the operator uses in the same pod.
pub(super) fn lacks_containers(template: &Template, names: &[&str], at: &str) -> Vec<Violation> {
    let template = Value::Object(template.0.clone());
    containers(&template["spec"], &format!("{at}.spec"))
        .into_iter()
        .filter_map(|(path, container)| {
            let name = container["name"].as_str()?;
            names.contains(&name).then(|| {
                Violation::error(
                    format!("{path}.name"),
                    format!("{name} is the operator's container: choose another name"),
                )
            })
        })
        .collect()
}
