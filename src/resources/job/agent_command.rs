//! What an agent's container runs: our shim, which runs the user's function or command once per session.

use serde_json::{Value, json};

use super::config::{PARAMETERS_FILE, SETTINGS};
use crate::api::job::{AgentContainer, AgentFunction, Agentic};
use crate::api::values::Template;
use crate::resources::Refusal;
use crate::resources::volumes::{self, Mounted};

/// The agent's container.
pub const AGENT: &str = "agent";
/// Directory that launcher and shim share.
pub(super) const SESSION_DIRECTORY: &str = "/run/rollout";
/// Where a function's code is.
const CODE: &str = "/code";

/// The agent's part of its Pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgentCommand {
    /// Its image; none: the template has it.
    pub(super) image: Option<String>,
    /// Arguments of the shim.
    pub(super) arguments: Vec<String>,
    pub(super) mounts: Vec<Mounted>,
    /// The user's template, without the command that the shim runs.
    pub(super) template: Option<Template>,
    /// Path of the template.
    pub(super) at: &'static str,
}

/// `settings` is the name of the attempt's `ConfigMap`.
pub(super) fn of(
    agentic: &Agentic,
    settings: &str,
    grace_seconds: i32,
) -> Result<AgentCommand, Refusal> {
    let mut arguments = vec![
        "agent".to_owned(),
        "exec".to_owned(),
        format!("--directory={SESSION_DIRECTORY}"),
        "--inherit-environment".to_owned(),
        format!("--grace-period-seconds={grace_seconds}"),
    ];
    match (&agentic.agent.function, &agentic.agent.container) {
        (Some(wanted), _) => Ok(function(agentic, wanted, settings, arguments)),
        (None, Some(wanted)) => {
            let (template, command) = container(wanted)?;
            arguments.push("--".to_owned());
            arguments.extend(command);
            Ok(AgentCommand {
                image: None,
                arguments,
                mounts: Vec::new(),
                template: Some(template),
                at: "spec.generate.agentic.agent.container.template",
            })
        }
        (None, None) => Err(Refusal::not_supported(
            "spec.generate.agentic.agent",
            "another agent than function and container",
        )),
    }
}

fn function(
    agentic: &Agentic,
    wanted: &AgentFunction,
    settings: &str,
    mut arguments: Vec<String>,
) -> AgentCommand {
    arguments.push(format!("--function={}", wanted.path.0));
    arguments.push("--python=python3".to_owned());
    let mut mounts = Vec::new();
    let code = wanted
        .code
        .as_ref()
        .and_then(|code| volumes::code(code, "agent-code", CODE));
    if let Some((mounted, directory)) = code {
        mounts.push(mounted);
        arguments.push(format!("--code={directory}"));
    }
    if !agentic.parameters.is_empty() {
        // This one key: the rest of the settings is not the agent's to see.
        let source = volumes::config_map_keys(settings, &[PARAMETERS_FILE]);
        mounts.push(Mounted::read_only("parameters", SETTINGS, source));
        arguments.push(format!("--parameters={SETTINGS}/{PARAMETERS_FILE}"));
    }
    AgentCommand {
        image: Some(wanted.image.clone()),
        arguments,
        mounts,
        template: wanted.template.clone(),
        at: "spec.generate.agentic.agent.function.template",
    }
}

/// Takes the command out of the template: the shim is what the kubelet starts.
fn container(wanted: &AgentContainer) -> Result<(Template, Vec<String>), Refusal> {
    const AT: &str = "spec.generate.agentic.agent.container.template.spec.containers";
    if wanted.abort.is_some() {
        return Err(Refusal::not_supported(
            "spec.generate.agentic.agent.container.abort",
            "a command on abort; the program gets SIGTERM",
        ));
    }
    let mut template = json!(wanted.template);
    let containers = template["spec"]["containers"].as_array_mut();
    let agent = containers
        .into_iter()
        .flatten()
        .find(|container| container["name"] == AGENT)
        .and_then(Value::as_object_mut);
    let Some(agent) = agent else {
        return Err(Refusal::invalid(
            AT,
            "needs a container called agent, with its image and command",
        ));
    };
    let command = texts(agent.shift_remove("command"));
    if command.is_empty() {
        return Err(Refusal::invalid(
            format!("{AT}[{AGENT}].command"),
            "is required: the entry point of an image is not known before it runs",
        ));
    }
    let arguments = texts(agent.shift_remove("args"));
    let members = match template {
        Value::Object(members) => members,
        _ => serde_json::Map::new(),
    };
    Ok((Template(members), [command, arguments].concat()))
}

fn texts(list: Option<Value>) -> Vec<String> {
    let Some(Value::Array(list)) = list else {
        return Vec::new();
    };
    list.into_iter()
        .filter_map(|text| match text {
            Value::String(text) => Some(text),
            _ => None,
        })
        .collect()
}
