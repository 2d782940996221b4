//! What a process is started with: its words, its directory and its variables. What no process can have is refused here, not by a start that
//! fails again and again.
//!
//! A name of a variable is printable ASCII without `=`, as Kubernetes wants it.

use serde_json::Value;

use super::violation::Violation;
use crate::api::manifest::path;
use crate::api::values::EnvVar;

/// What no process can have of a container of the user's.
pub(super) fn container(container: &Value, at: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for field in ["command", "args"] {
        for (position, word) in list(&container[field]) {
            let at = path::index(&format!("{at}.{field}"), position);
            found.extend(nul(word.as_str(), at, "no argument"));
        }
    }
    let directory = container["workingDir"].as_str();
    found.extend(nul(directory, format!("{at}.workingDir"), "no path"));
    for (position, variable) in list(&container["env"]) {
        let at = path::index(&format!("{at}.env"), position);
        found.extend(name(variable["name"].as_str(), format!("{at}.name")));
        let value = variable["value"].as_str();
        found.extend(nul(value, format!("{at}.value"), "no variable"));
    }
    for (position, source) in list(&container["envFrom"]) {
        let at = path::index(&format!("{at}.envFrom"), position);
        let prefix = source["prefix"]
            .as_str()
            .filter(|prefix| !prefix.is_empty());
        found.extend(name(prefix, format!("{at}.prefix")));
    }
    found
}

/// The same of variables that are not in a container.
pub(super) fn variables(variables: &[EnvVar], at: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (position, variable) in variables.iter().enumerate() {
        let at = path::index(at, position);
        // The schema says so of an empty one.
        let named = Some(variable.name.as_str()).filter(|name| !name.is_empty());
        found.extend(name(named, format!("{at}.name")));
        let value = variable.value.as_deref();
        found.extend(nul(value, format!("{at}.value"), "no variable"));
    }
    found
}

fn list(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

fn nul(text: Option<&str>, at: String, holder: &str) -> Option<Violation> {
    text.filter(|text| text.contains('\0')).map(|_| {
        let message = format!("has a NUL (\\0), which {holder} can hold: remove it");
        Violation::error(at, message)
    })
}

fn name(name: Option<&str>, at: String) -> Option<Violation> {
    let name = name?;
    if name.is_empty() {
        return Some(Violation::error(at, "is empty: name the variable"));
    }
    let wrong = name
        .chars()
        .find(|sign| *sign == '=' || !(' '..='~').contains(sign))?;
    let message = match wrong {
        '=' => {
            "has a =, which no variable's name can have: put what follows it into value".to_owned()
        }
        other => {
            format!("has {other:?}: a variable's name is printable ASCII without =, remove it")
        }
    };
    Some(Violation::error(at, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(container: &Value) -> Vec<String> {
        let found = super::container(container, "c");
        let lines = found
            .iter()
            .map(|one| format!("{}: {}", one.path, one.message));
        lines.collect()
    }

    #[test]
    fn what_no_process_can_have_is_named_by_its_field() {
        let container = json!({
            "command": ["a", "b\0"],
            "args": ["\0"],
            "workingDir": "/w\0",
            "envFrom": [{"prefix": "A="}, {"prefix": ""}],
            "env": [
                {"name": "A", "value": "1\0"},
                {"name": "A=B", "value": "1"},
                {"name": "A\0"},
                {"name": ""},
                {"name": "Ä"},
            ],
        });
        let expected = [
            "c.command[1]: has a NUL (\\0), which no argument can hold: remove it",
            "c.args[0]: has a NUL (\\0), which no argument can hold: remove it",
            "c.workingDir: has a NUL (\\0), which no path can hold: remove it",
            "c.env[0].value: has a NUL (\\0), which no variable can hold: remove it",
            "c.env[1].name: has a =, which no variable's name can have: put what follows it into value",
            "c.env[2].name: has '\\0': a variable's name is printable ASCII without =, remove it",
            "c.env[3].name: is empty: name the variable",
            "c.env[4].name: has 'Ä': a variable's name is printable ASCII without =, remove it",
            "c.envFrom[0].prefix: has a =, which no variable's name can have: put what follows it into value",
        ];
        assert_eq!(said(&container), expected);
    }

    #[test]
    fn what_kubernetes_takes_is_taken() {
        let container = json!({
            "command": ["a", ""],
            "args": ["é\n"],
            "env": [{"name": "my.name-1 x!", "value": "=\n"}],
            "envFrom": [{"prefix": "P_"}, {"configMapRef": {"name": "m"}}],
        });
        assert_eq!(said(&container), [""; 0]);
    }

    #[test]
    fn variables_of_our_own_lists_are_looked_at_too() {
        let variables: Vec<EnvVar> = serde_json::from_value(
            json!([{"name": "A", "value": "\0"}, {"name": "B="}, {"name": "C"}]),
        )
        .unwrap();
        let found = super::variables(&variables, "spec.plugins.env");
        let paths: Vec<_> = found.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(
            paths,
            ["spec.plugins.env[0].value", "spec.plugins.env[1].name"]
        );
    }
}
