//! Who may connect to whom in a job. Both policies exist before the first Pod does.

use serde_json::{Value, json};

use super::JobInput;
use super::config::STATUS_PORT;
use crate::api::job::Agentic;
use crate::resources::labels::{self, Component};
use crate::resources::pool::{AGENTS_PORT, from_controller, port};
use crate::resources::{Kind, Object, names};

/// Addresses that a resolver of the cluster can have: private and link-local ones. Node-local caches and resolvers on the hosts have no Pod that a
/// selector could name. A resolver on the internet is not among them: it would be a way out.
const LOCAL_ADDRESSES: [&str; 7] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "fc00::/7",
    "fe80::/10",
];

/// In: the job's agents to the router, the controller to the driver's state. Out: everywhere (engines, storage).
pub(super) fn driver(input: JobInput<'_>) -> Object {
    let job = &input.owner.name;
    let mut ingress = vec![from_controller(
        input.rendering.operator_namespace.as_deref(),
        STATUS_PORT,
    )];
    if input.agents().is_some() {
        ingress.push(json!({
            "from": [{"podSelector": {"matchLabels": labels::of_job(job, Component::Agent)}}],
            "ports": [port(AGENTS_PORT)],
        }));
    }
    let body = json!({"spec": {
        "podSelector": {"matchLabels": labels::of_job(job, Component::Driver)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }});
    let name = names::driver_policy(job);
    input.object(Kind::NetworkPolicy, name, Some(Component::Driver), body)
}

/// In: whom the spec names. Out: the job's router, DNS, and what the spec adds.
pub(super) fn agents(input: JobInput<'_>, agentic: &Agentic) -> Object {
    let job = &input.owner.name;
    let mut egress = vec![
        json!({
            "to": [{"podSelector": {"matchLabels": labels::of_job(job, Component::Driver)}}],
            "ports": [port(AGENTS_PORT)],
        }),
        dns(),
    ];
    let wanted = agentic.network_policy.clone().unwrap_or_default();
    egress.extend(wanted.egress.iter().map(|rule| json!(rule)));
    let mut body = json!({"spec": {
        "podSelector": {"matchLabels": labels::of_job(job, Component::Agent)},
        // Without a rule for what comes in, nothing does.
        "policyTypes": ["Ingress", "Egress"],
        "egress": egress,
    }});
    if !wanted.allow_from.is_empty() {
        body["spec"]["ingress"] = json!([{"from": wanted.allow_from}]);
    }
    let name = names::agent_policy(job);
    input.object(Kind::NetworkPolicy, name, Some(Component::Agent), body)
}

fn dns() -> Value {
    let mut to = vec![json!({
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    })];
    to.extend(LOCAL_ADDRESSES.map(|cidr| json!({"ipBlock": {"cidr": cidr}})));
    json!({"to": to, "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]})
}
