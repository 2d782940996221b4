//! The Pod of one slot and generation: the launcher beside the user's agent.
//!
//! The launcher has the Pod's claim token, in its own container's environment; the agent's container has neither the token nor anything that opens,
//! scores or ends a session. Pods of one job cannot be made twice: slot and generation are in the name.

use serde_json::{Map, Value, json};

use super::agent_command::{self, AGENT, AgentCommand, SESSION_DIRECTORY};
use super::driver_pod::steady;
use super::{JobInput, grace, plugins, sandbox};
use crate::api::job::Agentic;
use crate::api::meta::labels as name;
use crate::resources::labels::{self, Component};
use crate::resources::overlay::{self, Layer, PodParts};
use crate::resources::pool::AGENTS_PORT;
use crate::resources::volumes::{self, Mounted};
use crate::resources::{Kind, Object, Refusal, names, security};

/// Variable with the claim token.
const CLAIM_TOKEN: &str = "ROLLOUT_CLAIM_TOKEN";
/// How long a launcher waits for the controller's word on an end that may be the Pod's: the kubelet looks once a second.
const POD_WORD_SECONDS: u32 = 3;
/// The launcher's container.
pub const SESSION: &str = "session";

/// Which Pod of a job's agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentPod<'a> {
    /// The slot, from 0.
    pub slot: u32,
    /// The Pod of the slot, from 1.
    pub generation: u32,
    /// The image that the sample names, where samples do.
    pub image: Option<&'a str>,
}

/// The Pod, and the paths of what templates wanted and did not get.
///
/// # Errors
/// The job has no agents that run in Pods, or their template cannot run.
pub fn agent_pod(input: JobInput<'_>, pod: AgentPod<'_>) -> Result<(Object, Vec<String>), Refusal> {
    let Some(agentic) = input.agents() else {
        return Err(Refusal::invalid(
            "spec.generate",
            "has no agents that run in pods of the job",
        ));
    };
    let settings = names::driver(&input.owner.name, input.attempt);
    let command = agent_command::of(agentic, &settings, grace::agent(input.spec))?;
    let beside = agentic.sandbox.as_ref().and_then(sandbox::template);
    let layers: Vec<Layer<'_>> = [
        (command.at, command.template.as_ref()),
        ("spec.generate.agentic.sandbox.template", beside.as_ref()),
    ]
    .into_iter()
    .filter_map(|(at, template)| {
        Some(Layer {
            at,
            template: template?,
        })
    })
    .collect();
    let mut merged = overlay::pod(
        parts(input, agentic, pod, &command),
        &layers,
        input.rendering,
    );
    security::restrict(&mut merged.spec);
    security::allow_chosen_root(&mut merged.spec);
    same_user(&mut merged.spec);
    security::no_credentials(&merged.spec, security::Trust::Users, command.at)?;
    let name = names::agent(&input.owner.name, pod.slot, pod.generation);
    let mut object = input.object(Kind::Pod, name, None, json!({"spec": merged.spec}));
    let metadata = &mut object.value["metadata"];
    let version = metadata["labels"][name::APP_VERSION].clone();
    metadata["labels"] = merged.metadata["labels"].clone();
    metadata["labels"][name::APP_VERSION] = version;
    metadata["annotations"] = merged.metadata["annotations"].clone();
    Ok((object, merged.overruled))
}

fn parts(
    input: JobInput<'_>,
    agentic: &Agentic,
    pod: AgentPod<'_>,
    command: &AgentCommand,
) -> PodParts {
    let program = plugins::program();
    let shared = Mounted::writable(SESSION, SESSION_DIRECTORY, volumes::empty_dir());
    let mut volumes = vec![program.volume.clone(), shared.volume.clone()];
    let mut mounts = vec![program.read_only_mount(), shared.mount.clone()];
    for Mounted { volume, mount } in &command.mounts {
        volumes.push(volume.clone());
        mounts.push(mount.clone());
    }
    let mut agent = json!({
        "name": AGENT,
        "command": [plugins::PROGRAM],
        "args": command.arguments,
        "env": identity(input, pod),
        "volumeMounts": mounts,
    });
    if let Some(image) = pod.image.or(command.image.as_deref()) {
        agent["image"] = json!(image);
    }
    let defaults = json!({
        "securityContext": security::pod(),
        "initContainers": [
            {"name": plugins::INSTALL},
            {"name": SESSION, "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}},
        ],
        "containers": [{"name": AGENT}],
    });
    PodParts {
        labels: labels_of(input, pod),
        annotations: steady(),
        defaults,
        owned: json!({
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "hostNetwork": false,
            "hostPID": false,
            "hostIPC": false,
            // An agent would see the launcher's environment.
            "shareProcessNamespace": false,
            "terminationGracePeriodSeconds": grace::agent(input.spec),
            "volumes": volumes,
            "initContainers": [
                plugins::install(&input.rendering.image),
                launcher(input, agentic, pod, &shared),
            ],
            "containers": [agent],
        }),
    }
}

fn launcher(input: JobInput<'_>, agentic: &Agentic, pod: AgentPod<'_>, shared: &Mounted) -> Value {
    let token = input
        .secrets
        .claim_token(&input.owner.name, pod.slot, pod.generation);
    let mut arguments = vec![
        "agent".to_owned(),
        "launch".to_owned(),
        // With a dot at its end: a name of five parts is else looked up in every domain of the search list first.
        format!("--router=http://{}.:{AGENTS_PORT}", input.router_host()),
        format!("--claim-token-env={CLAIM_TOKEN}"),
        "--until-stopped".to_owned(),
        format!("--directory={SESSION_DIRECTORY}"),
        format!("--concurrent={}", agentic.concurrent_sessions_per_pod),
        format!("--sessions-per-pod={}", agentic.sessions_per_pod),
        format!("--grace-period-seconds={}", grace::agent(input.spec)),
        format!("--pod-word-seconds={POD_WORD_SECONDS}"),
    ];
    if agentic
        .sandbox
        .as_ref()
        .is_some_and(sandbox::has_containers)
    {
        arguments.push("--sandbox".to_owned());
    }
    json!({
        "name": SESSION,
        "image": input.rendering.image,
        "args": arguments,
        "env": [{"name": CLAIM_TOKEN, "value": token}],
        "restartPolicy": "Always",
        "securityContext": security::own_container(),
        "volumeMounts": [shared.mount],
    })
}

fn identity(input: JobInput<'_>, pod: AgentPod<'_>) -> Value {
    json!([
        {"name": "ROLLOUT_JOB", "value": input.owner.name},
        {"name": "ROLLOUT_SLOT", "value": pod.slot.to_string()},
        {"name": "ROLLOUT_GENERATION", "value": pod.generation.to_string()},
    ])
}

fn labels_of(input: JobInput<'_>, pod: AgentPod<'_>) -> Map<String, Value> {
    let mut labels = labels::of_pod(input.owner, Some(Component::Agent));
    for (label, number) in [
        (name::ATTEMPT, input.attempt),
        (name::SLOT, pod.slot),
        (name::GENERATION, pod.generation),
    ] {
        labels::set(&mut labels, label, &number.to_string());
    }
    labels::queue(input.owner, &mut labels);
    labels
}

/// The launcher runs as the agent's user where a template chose one for the agent's container alone: they share a socket.
fn same_user(spec: &mut Value) {
    let containers = spec["containers"].as_array().into_iter().flatten();
    let chosen: Vec<(&str, Value)> = containers
        .filter(|container| container["name"] == AGENT)
        .flat_map(|agent| {
            ["runAsUser", "runAsGroup", "runAsNonRoot"]
                .map(|field| (field, agent["securityContext"][field].clone()))
        })
        .filter(|(_, value)| !value.is_null())
        .collect();
    let launcher = spec["initContainers"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .find(|container| container["name"] == SESSION);
    if let Some(launcher) = launcher {
        for (field, value) in chosen {
            launcher["securityContext"][field] = value;
        }
    }
}
