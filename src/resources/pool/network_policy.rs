//! Who may connect to whom in a pool. To engines: its own routers, the drivers of jobs that use it, controller and sidecars for states, and whom
//! the spec names.

use serde_json::{Value, json};

use super::{ENGINE_PORT, PoolInput, SIDECAR_PORT, SURVEY_PORT};
use crate::api::meta::labels as name;
use crate::api::pool::{Engine, External};
use crate::resources::labels::{self, Component};
use crate::resources::{Kind, Object, names};

/// The label that every namespace has with its own name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

pub(super) fn engines(input: PoolInput<'_>, engine: &Engine) -> Option<Object> {
    let wanted = input.spec.network_policy.clone().unwrap_or_default();
    if !wanted.enabled {
        return None;
    }
    let owner = input.owner;
    let mut ingress = vec![json!({
        "from": [
            {"podSelector": {"matchLabels": labels::of_pool(&owner.name, Component::Router)}},
            {
                "podSelector": {"matchLabels": {name::POOL: owner.name, name::COMPONENT: Component::Driver.value()}},
                "namespaceSelector": {"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "In", "values": namespaces(input, engine)}]},
            },
        ],
        "ports": [port(ENGINE_PORT), port(SIDECAR_PORT)],
    })];
    ingress.push(from_controller(
        input.rendering.operator_namespace.as_deref(),
        SIDECAR_PORT,
    ));
    if !wanted.allow_from.is_empty() {
        // Every port: a trainer that distributes weights connects to ports that the engine chooses.
        ingress.push(json!({"from": wanted.allow_from}));
    }
    // An engine that begins asks the others which checkpoint they have.
    ingress.push(json!({
        "from": [{"podSelector": {"matchLabels": labels::of_pool(&owner.name, Component::Engine)}}],
        "ports": [port(SIDECAR_PORT)],
    }));
    let body = json!({"spec": {
        "podSelector": {"matchLabels": labels::of_pool(&owner.name, Component::Engine)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }});
    let labels = input.labels(Some(Component::Engine));
    let name = names::engine(&owner.name);
    Some(Object::new(Kind::NetworkPolicy, owner, name, labels, body).owned_by(owner))
}

/// The Pod that holds the key of external engines. In: the controller. Out: DNS and the engines.
pub(super) fn survey(input: PoolInput<'_>, external: &External) -> Option<Object> {
    let wanted = input.spec.network_policy.clone().unwrap_or_default();
    if !wanted.enabled {
        return None;
    }
    let owner = input.owner;
    let engines = match &external.service {
        Some(service) => json!({"protocol": "TCP", "port": service.port}),
        // The name in a URL may be a Service, which has another port than its Pods; a policy sees theirs.
        None => json!({"protocol": "TCP"}),
    };
    let operator = input.rendering.operator_namespace.as_deref();
    let body = json!({"spec": {
        "podSelector": {"matchLabels": labels::of_pool(&owner.name, Component::Survey)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [from_controller(operator, SURVEY_PORT)],
        "egress": [dns(&input.rendering.dns_addresses), {"ports": [engines]}],
    }});
    let labels = input.labels(Some(Component::Survey));
    let name = names::survey(&owner.name);
    Some(Object::new(Kind::NetworkPolicy, owner, name, labels, body).owned_by(owner))
}

/// The Pods of the cluster's DNS, where every distribution that has any labels them so, and the addresses that the installation names: a cache on
/// the node and a resolver on a host have no Pod that a selector could name. Anything wider is a way out: port 53 of some other Pod, say.
pub(crate) fn dns(addresses: &[String]) -> Value {
    let mut to = vec![json!({
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    })];
    to.extend(
        addresses
            .iter()
            .map(|cidr| json!({"ipBlock": {"cidr": cidr}})),
    );
    json!({"to": to, "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]})
}

/// Namespaces whose drivers may connect. Engines with a key are reached from other namespaces through the pool's router only: the key stays
/// in its own.
fn namespaces(input: PoolInput<'_>, engine: &Engine) -> Vec<String> {
    let mut namespaces = vec![input.owner.namespace.clone()];
    if engine.api_key_secret_ref.is_none() {
        let others = input.spec.allowed_namespaces.iter();
        namespaces.extend(
            others
                .filter(|other| **other != input.owner.namespace)
                .cloned(),
        );
    }
    namespaces
}

pub(crate) fn port(number: u16) -> Value {
    json!({"protocol": "TCP", "port": number})
}

/// A rule that lets the controller in. One that runs outside of the cluster has no namespace: then everybody is let in.
pub(crate) fn from_controller(operator_namespace: Option<&str>, number: u16) -> Value {
    let mut rule = json!({"ports": [port(number)]});
    if let Some(namespace) = operator_namespace {
        rule["from"] = json!([{"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: namespace}}}]);
    }
    rule
}
