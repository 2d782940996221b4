//! Security contexts: the restricted profile wherever the image is ours.

use serde_json::{Value, json};

use super::error::Refusal;
use super::overlay::merge;

/// The user of the operator's image, and of users' images unless a template says otherwise: one that is not root.
pub(super) const USER: i64 = 65532;

/// Of a container with the operator's image.
pub(super) fn own_container() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// Of a container with the operator's image in a Pod whose other containers choose their user themselves.
pub(super) fn own_container_and_user() -> Value {
    let mut context = own_container();
    context["runAsNonRoot"] = json!(true);
    context["runAsUser"] = json!(USER);
    context["runAsGroup"] = json!(USER);
    context
}

/// Of a container with the user's image, as a default.
pub(super) fn users_container() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}

/// Gives every container of a Pod that default, also those that only a template has. What they say themselves stays.
pub(super) fn restrict(spec: &mut Value) {
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let own = container.get("securityContext").cloned();
            container["securityContext"] =
                merge(users_container(), &own.unwrap_or_else(|| json!({})));
        }
    }
}

/// Of a Pod, as a default. All containers are one user, so that they can connect to each other's sockets; volumes belong to its group.
pub(super) fn pod() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// A template that says root means it: then the Pod's default `runAsNonRoot` would only keep it from starting.
pub(super) fn allow_chosen_root(spec: &mut Value) {
    if spec["securityContext"]["runAsUser"] == 0 {
        spec["securityContext"]["runAsNonRoot"] = json!(false);
    }
}

/// Whose code runs in a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Ours, or SGLang.
    Ours,
    /// The users'.
    Users,
}

/// Refuses credentials of the cluster in a Pod that is about to be made: tokens of an account can also come as a volume. Our own parts may have
/// one for somebody else than the API server, as object storage wants it.
pub(super) fn no_credentials(spec: &Value, trust: Trust, at: &str) -> Result<(), Refusal> {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    for volume in volumes {
        let sources = volume["projected"]["sources"].as_array();
        for source in sources.into_iter().flatten() {
            let token = &source["serviceAccountToken"];
            let is_for_others = trust == Trust::Ours && token["audience"].is_string();
            if token.is_object() && !is_for_others {
                let name = volume["name"].as_str().unwrap_or_default();
                return Err(Refusal::invalid(
                    format!("{at}.spec.volumes[{name}]"),
                    "no pod of a rollout holds credentials of the cluster: remove serviceAccountToken",
                ));
            }
        }
    }
    Ok(())
}
