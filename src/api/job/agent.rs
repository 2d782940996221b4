//! The agent: a Python function, any container, or a server that runs already.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plugins::PluginRef;
use crate::api::rules::Rules;
use crate::api::values::{CodeSource, SecretKeyRef, Template};

/// The agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rules)]
pub struct Agent {
    /// A Python function: `run(base_url, prompt, request_kwargs, metadata)`, with an optional abort(args) beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<AgentFunction>,
    /// Any program, in a container of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<AgentContainer>,
    /// A server that runs agents and their sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<AgentServer>,
}

impl Agent {
    /// The container called agent of the user's pod template, with its path. `at` is the agent's own.
    pub fn own_container(&self, at: &str) -> Option<(String, &Value)> {
        let (at, template) = self.own_template(at)?;
        let containers = template.0.get("spec")?.get("containers")?.as_array()?;
        let position = containers
            .iter()
            .position(|container| container["name"] == "agent")?;
        let at = format!("{at}.spec.containers[{position}]");
        Some((at, &containers[position]))
    }

    /// The user's pod template, with its path. `at` is the agent's own.
    pub fn own_template(&self, at: &str) -> Option<(String, &Template)> {
        if let Some(container) = &self.container {
            return Some((format!("{at}.container.template"), &container.template));
        }
        let template = self.function.as_ref()?.template.as_ref()?;
        Some((format!("{at}.function.template"), template))
    }
}

fn rules(schema: &mut schemars::Schema) {
    Rules::of(schema).exactly_one(
        &["function", "container", "server"],
        "set exactly one of function (a Python function), container (any program) and server (an agent server that runs already)",
    );
}

/// A Python function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentFunction {
    /// The function, as module.function: `run(base_url, prompt, request_kwargs, metadata)`, sync or async.
    pub path: PluginRef,
    /// Image with python3 (3.9 or later) and what the function imports.
    #[schemars(length(min = 1, max = 1024))]
    pub image: String,
    /// Code that is put on the import path; none: the image has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeSource>,
    /// Pod template that is merged over the operator's, containers by name (the agent's is called agent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
}

/// Any program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentContainer {
    /// Pod template with a container called agent, with its image and command.
    pub template: Template,
    /// What tells the program that its session is no longer needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort: Option<ContainerAbort>,
}

/// What happens on abort after the program got SIGTERM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerAbort {
    /// A command that is run in the agent's container.
    pub exec: ExecAction,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecAction {
    /// Program and arguments, without a shell.
    #[schemars(length(min = 1, max = 64), inner(length(max = 4096)))]
    pub command: Vec<String>,
}

/// A server that runs agents and their sandboxes, as Harbor does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentServer {
    /// Base URL.
    #[schemars(length(max = 1024), regex(pattern = "^https?://"))]
    pub url: String,
    /// Path that runs one agent. Default: /run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^/"))]
    pub run_path: Option<String>,
    /// Path that aborts an instance's agents. Default: /flush.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^/"))]
    pub flush_path: Option<String>,
    /// Bearer token for both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyRef>,
}
