//! Who may connect to whom in a job. Both policies exist before the first Pod does.

use serde_json::{Value, json};

use super::JobInput;
use super::config::STATUS_PORT;
use crate::api::job::Agentic;
use crate::resources::labels::{self, Component};
use crate::resources::pool::{AGENTS_PORT, from_controller, port};
use crate::resources::{Kind, Object, names};

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
        dns(&input.rendering.dns_addresses),
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

/// The Pods of the cluster's DNS, where every distribution that has any labels them so, and the addresses that the installation names: a cache on
/// the node and a resolver on a host have no Pod that a selector could name. Anything wider is a way out: port 53 of some other Pod, say.
fn dns(addresses: &[String]) -> Value {
    let mut to = vec![json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    })];
    to.extend(
        addresses
            .iter()
            .map(|cidr| json!({"ipBlock": {"cidr": cidr}})),
    );
    json!({"to": to, "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]})
}
