//! Containers of the session's Pod beside the agent: native sidecars, which start before it and end after it.

use serde_json::{Value, json};

use crate::api::job::Sandbox;
use crate::api::values::Template;

/// The sandbox's template with its containers as native sidecars, behind the init containers that it has.
pub(super) fn template(sandbox: &Sandbox) -> Option<Template> {
    let mut template = json!(sandbox.template.as_ref()?);
    let spec = template["spec"].as_object_mut()?;
    let containers = match spec.shift_remove("containers") {
        Some(Value::Array(containers)) => containers,
        _ => Vec::new(),
    };
    let mut first = match spec.shift_remove("initContainers") {
        Some(Value::Array(containers)) => containers,
        _ => Vec::new(),
    };
    first.extend(containers.into_iter().map(sidecar));
    spec.insert("initContainers".to_owned(), Value::Array(first));
    match template {
        Value::Object(members) => Some(Template(members)),
        _ => None,
    }
}

fn sidecar(container: Value) -> Value {
    let mut sidecar = container;
    sidecar["restartPolicy"] = json!("Always");
    if sidecar["terminationMessagePolicy"].is_null() {
        // What it printed last is the reason that people see.
        sidecar["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
    }
    sidecar
}

/// Whether containers run beside the agent.
pub(super) fn has_containers(sandbox: &Sandbox) -> bool {
    let template = sandbox.template.as_ref();
    let containers =
        template.and_then(|template| template.0.get("spec")?.get("containers")?.as_array());
    containers.is_some_and(|containers| !containers.is_empty())
}
