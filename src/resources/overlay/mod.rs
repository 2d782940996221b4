//! A user's Pod template over the operator's.
//!
//! In order: the operator's defaults, the user's templates, what the operator owns. Objects are merged member by member; lists that
//! Kubernetes merges by a key (containers, volumes, variables, mounts, ports, ...) by that key, tolerations are appended, other lists are
//! replaced; null removes. All of it is raw JSON: a field that this client does not know is merged like any other.
//!
//! Guarantees: what the operator owns wins; where a template wanted something else there, its path is listed. Labels and annotations with
//! the operator's prefix are left out and listed: a Pod with a forged label could be taken for another one.

mod conflict;
mod merge;

use serde_json::{Map, Value, json};

use crate::api::meta::labels::RESERVED_PREFIX;
use crate::api::values::Template;
use crate::resources::Rendering;

pub use merge::merge;

/// A Pod as the operator wants it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodParts {
    /// Labels; all are the operator's.
    pub(super) labels: Map<String, Value>,
    /// Annotations that a template may change.
    pub(super) annotations: Map<String, Value>,
    /// What a template may change: a `PodSpec`.
    pub(super) defaults: Value,
    /// What it may not: a `PodSpec`.
    pub(super) owned: Value,
}

/// A user's template and the path of its field, for messages.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layer<'a> {
    pub(super) at: &'a str,
    pub(super) template: &'a Template,
}

/// A merged Pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Overlaid {
    /// Labels and annotations.
    pub(super) metadata: Value,
    /// A `PodSpec`.
    pub(super) spec: Value,
    /// Paths of what a template wanted and did not get.
    pub(super) overruled: Vec<String>,
}

impl Overlaid {
    /// As the template of a Deployment.
    pub(super) fn template(self) -> Value {
        json!({"metadata": self.metadata, "spec": self.spec})
    }
}

/// Merges the templates, the later ones over the earlier ones. Every Pod has the installation's pull secrets, if there are any.
pub(super) fn pod(parts: PodParts, layers: &[Layer<'_>], rendering: &Rendering) -> Overlaid {
    let PodParts {
        labels,
        annotations,
        defaults,
        owned,
    } = parts;
    let mut spec = defaults;
    let pull_secrets = rendering.pull_secrets();
    if !pull_secrets.is_empty() {
        spec["imagePullSecrets"] = json!(pull_secrets);
    }
    let mut overruled = Vec::new();
    let mut all_labels = Map::new();
    let mut all_annotations = annotations;
    for layer in layers {
        let template = &layer.template.0;
        if let Some(wanted) = template.get("spec") {
            spec = merge(spec, wanted);
            conflict::find(
                wanted,
                &owned,
                &format!("{}.spec", layer.at),
                &mut overruled,
            );
        }
        for (section, into) in [
            ("labels", &mut all_labels),
            ("annotations", &mut all_annotations),
        ] {
            let wanted = template
                .get("metadata")
                .and_then(|metadata| metadata.get(section));
            for (key, value) in wanted.and_then(Value::as_object).into_iter().flatten() {
                let is_ours =
                    section == "labels" && labels.get(key).is_some_and(|ours| ours != value);
                if is_ours || key.starts_with(RESERVED_PREFIX) {
                    overruled.push(format!("{}.metadata.{section}[{key}]", layer.at));
                } else {
                    into.insert(key.clone(), value.clone());
                }
            }
        }
    }
    all_labels.extend(labels);
    let mut metadata = json!({"labels": all_labels});
    if !all_annotations.is_empty() {
        metadata["annotations"] = Value::Object(all_annotations);
    }
    let mut spec = merge(spec, &owned);
    without_empty_lists(&mut spec);
    Overlaid {
        metadata,
        spec,
        overruled,
    }
}

/// The server drops empty lists, so that one that is applied would be a difference for ever.
fn without_empty_lists(spec: &mut Value) {
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        let containers = containers.into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            container.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
        }
    }
}
