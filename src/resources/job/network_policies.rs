//! Who may connect to whom in a job. Both policies exist before the first Pod does.

use serde_json::json;

use super::JobInput;
use super::config::STATUS_PORT;
use crate::api::job::Agentic;
use crate::resources::labels::{self, Component};
use crate::resources::pool::{AGENTS_PORT, dns, from_controller, port};
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
