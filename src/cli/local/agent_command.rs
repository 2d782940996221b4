//! What a shim runs: the user's function or command.

use std::path::Path;

use serde_json::Value;

use super::{
    inputs::{Place, UserProcess},
    workplace,
};
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
        "spec.generate.agentic.agent.container.template: the word {0:?} of `command` and `args` has a NUL (\\0), which no argument can hold; remove it"
    )]
    Nul(String),
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
    process: &UserProcess,
) -> Result<Vec<String>, AgentError> {
    let agent = &agentic.agent;
    if let Some(function) = &agent.function {
        let mut arguments = vec!["--function".to_owned(), function.path.0.clone()];
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
    words(agentic, process)
}

/// Whether the agent can run here, before anything is made for it.
pub(super) fn check(agentic: &Agentic, process: &UserProcess) -> Result<(), AgentError> {
    if agentic.agent.function.is_some() {
        return Ok(());
    }
    words(agentic, process).map(drop)
}

/// The arguments for a command.
fn words(agentic: &Agentic, process: &UserProcess) -> Result<Vec<String>, AgentError> {
    let agent = &agentic.agent;
    if agent.container.is_none() {
        return Err(AgentError::Kind);
    }
    let (_, container) = agent.own_container("").ok_or(AgentError::NoCommand)?;
    let command = texts(&container["command"]);
    if command.is_empty() {
        return Err(AgentError::NoCommand);
    }
    let words = command.into_iter().chain(texts(&container["args"]));
    let mut arguments = vec!["--".to_owned()];
    arguments.extend(words.map(|word| process.environment.expand(word)));
    if let Some(word) = arguments.iter().find(|word| word.contains('\0')) {
        return Err(AgentError::Nul(word.clone()));
    }
    if let Place::Own { start } = &process.place {
        arguments[1] = workplace::program(std::mem::take(&mut arguments[1]), start);
    }
    Ok(arguments)
}

fn texts(list: &Value) -> Vec<&str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::environment::Environment, *};

    fn of(agent: &Value) -> Result<Vec<String>, AgentError> {
        let agentic: Agentic = serde_json::from_value(json!({ "agent": agent })).unwrap();
        let files = FunctionFiles {
            python: Path::new("python3"),
            code: Some(Path::new("/code")),
            parameters: Path::new("/p.json"),
        };
        let process = UserProcess {
            environment: Environment::default(),
            place: Place::Own {
                start: "/home/me".into(),
            },
        };
        arguments(&agentic, &files, &process)
    }

    #[test]
    fn a_function_gets_its_files() {
        let arguments = of(&json!({"function": {"path": "m.run", "image": "i"}})).unwrap();
        let expected = [
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
            json!({"name": "agent", "image": "i", "command": ["./agent"], "args": ["-v", "$(NO) $$(NO)"]}),
        ))
        .unwrap();
        assert_eq!(arguments, ["--", "/home/me/agent", "-v", "$(NO) $(NO)"]);
        let nul = container(json!({"name": "agent", "image": "i", "command": ["a", "b\0"]}));
        let refused = of(&nul).unwrap_err().to_string();
        assert!(
            refused.contains(r#"the word "b\0" of `command`"#),
            "{refused}"
        );
        let refused = of(&container(json!({"name": "agent", "image": "i"}))).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("a `command` that runs on this machine"),
            "{refused}"
        );
    }
}
