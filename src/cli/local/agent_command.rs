//! What a shim runs: the user's function or command, and the variables that the manifest gives it.

use std::path::Path;

use serde_json::{Map, Value};

use crate::api::job::Agentic;

/// A reason why an agent cannot run without a cluster.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    #[error("spec.generate.agentic.agent: only function and container run without a cluster")]
    Kind,
    #[error(
        "spec.generate.agentic.agent.container.template: without a cluster there are no images: give the container a `command` that runs on this machine"
    )]
    NoCommand,
    #[error(
        "spec.generate.agentic.agent: the variable {name} has a valueFrom, which needs a cluster; write its value"
    )]
    ValueFrom { name: String },
}

/// Where a function's files are on this machine.
pub(super) struct FunctionFiles<'a> {
    pub(super) python: &'a Path,
    pub(super) code: Option<&'a Path>,
    pub(super) parameters: &'a Path,
}

/// The arguments of `agent exec` after its directory.
pub(super) fn arguments(
    agentic: &Agentic,
    files: &FunctionFiles<'_>,
) -> Result<Vec<String>, AgentError> {
    let agent = &agentic.agent;
    if let Some(function) = &agent.function {
        let template = function
            .template
            .as_ref()
            .and_then(|template| container(&template.0));
        let mut arguments = environment(template)?;
        arguments.extend(["--function".to_owned(), function.path.0.clone()]);
        arguments.extend(["--python".to_owned(), files.python.display().to_string()]);
        arguments.extend([
            "--parameters".to_owned(),
            files.parameters.display().to_string(),
        ]);
        if let Some(code) = files.code {
            arguments.extend(["--code".to_owned(), code.display().to_string()]);
        }
        return Ok(arguments);
    }
    let template = agent.container.as_ref().ok_or(AgentError::Kind)?;
    let container = container(&template.template.0).ok_or(AgentError::NoCommand)?;
    let command = texts(&container["command"]);
    if command.is_empty() {
        return Err(AgentError::NoCommand);
    }
    let mut arguments = environment(Some(container))?;
    arguments.push("--".to_owned());
    arguments.extend(command);
    arguments.extend(texts(&container["args"]));
    Ok(arguments)
}

/// The container named `agent`, or the first one.
fn container(template: &Map<String, Value>) -> Option<&Value> {
    let containers = template.get("spec")?.get("containers")?.as_array()?;
    let named = containers
        .iter()
        .find(|container| container["name"] == "agent");
    named.or_else(|| containers.first())
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The container's `env` as flags of the shim.
fn environment(container: Option<&Value>) -> Result<Vec<String>, AgentError> {
    let mut flags = Vec::new();
    for variable in container
        .and_then(|container| container["env"].as_array())
        .into_iter()
        .flatten()
    {
        let name = variable["name"].as_str().unwrap_or_default();
        if !variable["valueFrom"].is_null() {
            return Err(AgentError::ValueFrom {
                name: name.to_owned(),
            });
        }
        let value = variable["value"].as_str().unwrap_or_default();
        flags.extend(["--env".to_owned(), format!("{name}={value}")]);
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(agent: &Value) -> Result<Vec<String>, AgentError> {
        let agentic: Agentic = serde_json::from_value(json!({ "agent": agent })).unwrap();
        let files = FunctionFiles {
            python: Path::new("python3"),
            code: Some(Path::new("/code")),
            parameters: Path::new("/p.json"),
        };
        arguments(&agentic, &files)
    }

    #[test]
    fn a_function_gets_its_files_and_variables() {
        let template = json!({"spec": {"containers": [{"name": "agent", "env": [{"name": "A", "value": "1"}]}]}});
        let arguments =
            of(&json!({"function": {"path": "m.run", "image": "i", "template": template}}))
                .unwrap();
        let expected = [
            "--env",
            "A=1",
            "--function",
            "m.run",
            "--python",
            "python3",
            "--parameters",
            "/p.json",
            "--code",
            "/code",
        ];
        assert_eq!(arguments, expected);
    }

    #[test]
    fn a_container_needs_a_command() {
        let container = |container: Value| json!({"container": {"template": {"spec": {"containers": [container]}}}});
        let arguments = of(&container(
            json!({"name": "x", "image": "i", "command": ["./agent"], "args": ["-v"]}),
        ))
        .unwrap();
        assert_eq!(arguments, ["--", "./agent", "-v"]);
        let refused = of(&container(json!({"name": "x", "image": "i"}))).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("a `command` that runs on this machine"),
            "{refused}"
        );
        let secret = json!({"name": "x", "command": ["a"], "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {}}}]});
        assert!(
            of(&container(secret))
                .unwrap_err()
                .to_string()
                .contains("KEY has a valueFrom")
        );
    }
}
