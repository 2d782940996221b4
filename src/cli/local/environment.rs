//! The environment of the user's code: `env` and `envFrom` of a container, as the kubelet would make them.
//!
//! Values come from the manifest, and from the Secrets and `ConfigMap`s of the same files. `envFrom` comes first, then `env` in its order;
//! `$(NAME)` in a value stands for a variable that came before, `$$` for a dollar sign, and what is not known stays as it is written.
//!
//! Caveats: what only a pod has (`fieldRef`, `resourceFieldRef`) is refused. Values are shown nowhere: not in an argument, a log or a
//! file.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use rollout_agent::shim;
use serde_json::Value;

use super::workplace;
use crate::api::{manifest::Manifests, references::Target};

/// A variable that cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnvironmentError {
    #[error("{at}: no {} '{name}' in the given files; add the file that has it", target.kind())]
    NoObject {
        at: String,
        target: Target,
        name: String,
    },
    #[error("{at}: {} '{name}' has no key '{key}'; it has: {}", target.kind(), keys.join(", "))]
    NoKey {
        at: String,
        target: Target,
        name: String,
        key: String,
        keys: Vec<String>,
    },
    #[error("{at}: the key '{key}' of {} '{name}' is not text; a variable cannot hold it", target.kind())]
    NotText {
        at: String,
        target: Target,
        name: String,
        key: String,
    },
    #[error(
        "{at}: the value of the variable {variable} has a NUL (\\0), which no variable can hold; remove it"
    )]
    Nul { at: String, variable: String },
    #[error(
        "{at}: the variable {variable} comes from {source_kind}, which has no meaning without a cluster; write its value, or take it from a Secret or a ConfigMap"
    )]
    OnlyInAPod {
        at: String,
        variable: String,
        source_kind: String,
    },
}

/// Variables by name.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Environment {
    variables: BTreeMap<String, String>,
    /// Where relative paths in variables such as PATH start, for a process that works elsewhere.
    start: Option<PathBuf>,
}

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_set()
            .entries(self.variables.keys())
            .finish()
    }
}

impl Environment {
    /// Everything that a child gets: these, and the few of our own that pass.
    pub(super) fn of_child(&self) -> Vec<(OsString, OsString)> {
        let given: Vec<_> = self.variables.clone().into_iter().collect();
        let mut all = shim::clean_environment(std::env::vars_os(), false, &given);
        if let Some(start) = &self.start {
            for (name, value) in &mut all {
                *value = workplace::variable(name, std::mem::take(value), start);
            }
        }
        all
    }

    /// The same for a process that works in another directory than `start`, which the user had in mind.
    pub(super) fn meant_from(self, start: &Path) -> Self {
        Self {
            start: Some(start.to_owned()),
            ..self
        }
    }

    /// A text with its `$(NAME)`s replaced.
    pub(super) fn expand(&self, text: &str) -> String {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            expanded.push_str(&rest[..dollar]);
            let after = &rest[dollar + 1..];
            let name = after
                .strip_prefix('(')
                .and_then(|name| name.split_once(')'));
            rest = if let Some(after) = after.strip_prefix('$') {
                expanded.push('$');
                after
            } else if let Some((name, after)) = name {
                match self.variables.get(name) {
                    Some(value) => expanded.push_str(value),
                    None => expanded.extend(["$(", name, ")"]),
                }
                after
            } else {
                expanded.push('$');
                after
            };
        }
        expanded + rest
    }
}

/// The Secrets and `ConfigMap`s that a job can name.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    pub(super) manifests: &'a Manifests,
    pub(super) namespace: Option<&'a str>,
}

impl Objects<'_> {
    /// What `env` and `envFrom` of a container come to. `at` is the container's path.
    pub(super) fn environment(
        self,
        container: &Value,
        at: &str,
    ) -> Result<Environment, EnvironmentError> {
        let mut found = Environment::default();
        for (position, source) in items(&container["envFrom"]).enumerate() {
            let prefix = source["prefix"].as_str().unwrap_or_default();
            for (field, target) in [
                ("configMapRef", Target::ConfigMap),
                ("secretRef", Target::Secret),
            ] {
                let at = format!("{at}.envFrom[{position}].{field}");
                for (key, value) in self.whole(&source[field], target, &at)? {
                    found.variables.insert(format!("{prefix}{key}"), value);
                }
            }
        }
        for (position, variable) in items(&container["env"]).enumerate() {
            let name = variable["name"].as_str().unwrap_or_default();
            let at = format!("{at}.env[{position}].valueFrom");
            let value = match &variable["valueFrom"] {
                Value::Null => Some(found.expand(variable["value"].as_str().unwrap_or_default())),
                source => self.source(source, name, &at)?,
            };
            if value.as_ref().is_some_and(|value| value.contains('\0')) {
                return Err(EnvironmentError::Nul {
                    at: at.replace(".valueFrom", ".value"),
                    variable: name.to_owned(),
                });
            }
            if let Some(value) = value {
                found.variables.insert(name.to_owned(), value);
            }
        }
        Ok(found)
    }

    /// Every key of an object; nothing of an optional one that is not there.
    fn whole(
        self,
        reference: &Value,
        target: Target,
        at: &str,
    ) -> Result<Vec<(String, String)>, EnvironmentError> {
        let name = reference["name"].as_str().unwrap_or_default();
        match self.keys(target, name) {
            _ if reference.is_null() => Ok(Vec::new()),
            None if reference["optional"] == true => Ok(Vec::new()),
            None => Err(EnvironmentError::NoObject {
                at: at.to_owned(),
                target,
                name: name.to_owned(),
            }),
            Some(keys) => keys
                .into_iter()
                .map(|(key, bytes)| {
                    let value = text(bytes).ok_or_else(|| EnvironmentError::NotText {
                        at: at.to_owned(),
                        target,
                        name: name.to_owned(),
                        key: key.clone(),
                    })?;
                    Ok((key, value))
                })
                .collect(),
        }
    }

    /// The value of one key; none of an optional one that is not there.
    fn source(
        self,
        source: &Value,
        variable: &str,
        at: &str,
    ) -> Result<Option<String>, EnvironmentError> {
        let known = [
            ("configMapKeyRef", Target::ConfigMap),
            ("secretKeyRef", Target::Secret),
        ];
        let Some((field, target)) = known
            .into_iter()
            .find(|(field, _)| !source[*field].is_null())
        else {
            let mut kinds = source.as_object().into_iter().flatten();
            return Err(EnvironmentError::OnlyInAPod {
                at: at.to_owned(),
                variable: variable.to_owned(),
                source_kind: kinds
                    .next()
                    .map_or("nowhere".to_owned(), |(kind, _)| kind.clone()),
            });
        };
        let (reference, at) = (&source[field], format!("{at}.{field}"));
        let name = reference["name"].as_str().unwrap_or_default().to_owned();
        let key = reference["key"].as_str().unwrap_or_default().to_owned();
        let is_optional = reference["optional"] == true;
        let Some(mut keys) = self.keys(target, &name) else {
            return if is_optional {
                Ok(None)
            } else {
                Err(EnvironmentError::NoObject { at, target, name })
            };
        };
        match keys.remove(&key) {
            Some(bytes) => match text(bytes) {
                Some(value) => Ok(Some(value)),
                None => Err(EnvironmentError::NotText {
                    at,
                    target,
                    name,
                    key,
                }),
            },
            None if is_optional => Ok(None),
            None => Err(EnvironmentError::NoKey {
                at,
                target,
                name,
                key,
                keys: keys.into_keys().collect(),
            }),
        }
    }

    /// The keys of an object. Binary data of a `ConfigMap` is for files only.
    pub(super) fn keys(self, target: Target, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        if target == Target::ConfigMap {
            let map = self.manifests.config_map(self.namespace, name)?;
            let texts = map.data.iter().flatten();
            return Some(
                texts
                    .map(|(key, text)| (key.clone(), text.clone().into_bytes()))
                    .collect(),
            );
        }
        let secret = self.manifests.secret(self.namespace, name)?;
        let bytes = secret.data.iter().flatten();
        let texts = secret.string_data.iter().flatten();
        let bytes = bytes.map(|(key, bytes)| (key.clone(), bytes.0.clone()));
        // What is written as text replaces what is encoded, as in the API server.
        let texts = texts.map(|(key, text)| (key.clone(), text.clone().into_bytes()));
        Some(bytes.chain(texts).collect())
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A text without the byte that ends a variable.
fn text(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{
        manifest::{self, Purpose},
        support::Context,
    };

    fn of(container: &Value) -> Result<Vec<(String, String)>, String> {
        let text = r#"
apiVersion: v1
kind: Secret
metadata: {name: keys}
data: {api: b2xk, raw: /w==}
stringData: {api: new}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {LEVEL: "3", url: "http://x/$(LEVEL)"}
"#;
        let purpose = Purpose {
            context: Context::Local,
            complete: false,
        };
        let manifests =
            manifest::load_sources(manifest::read_text("f.yaml", text), purpose).unwrap();
        let objects = Objects {
            manifests: &manifests,
            namespace: None,
        };
        let found = objects.environment(container, "c");
        found
            .map(|found| found.variables.into_iter().collect())
            .map_err(|error| error.to_string())
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn values_come_from_the_manifest_and_its_objects() {
        let container = json!({
            "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "P_"}, {"secretRef": {"name": "none", "optional": true}}],
            "env": [
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "api"}}},
                {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "no", "optional": true}}},
                {"name": "P_LEVEL", "value": "4"},
                {"name": "ALL", "value": "$(KEY) $(P_LEVEL) $(P_url) $$(KEY) $(LATER) $x $("},
                {"name": "LATER", "value": "1"},
            ],
        });
        let expected = pairs(&[
            ("ALL", "new 4 http://x/$(LEVEL) $(KEY) $(LATER) $x $("),
            ("KEY", "new"),
            ("LATER", "1"),
            ("P_LEVEL", "4"),
            ("P_url", "http://x/$(LEVEL)"),
        ]);
        assert_eq!(of(&container).unwrap(), expected);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let from = |source: Value| of(&json!({"env": [{"name": "A", "valueFrom": source}]}));
        for (source, problem) in [
            (
                json!({"secretKeyRef": {"name": "gone", "key": "k"}}),
                "c.env[0].valueFrom.secretKeyRef: no Secret 'gone' in the given files",
            ),
            (
                json!({"configMapKeyRef": {"name": "settings", "key": "k"}}),
                "ConfigMap 'settings' has no key 'k'; it has: ",
            ),
            (
                json!({"secretKeyRef": {"name": "keys", "key": "raw"}}),
                "the key 'raw' of Secret 'keys' is not text",
            ),
            (
                json!({"fieldRef": {"fieldPath": "status.podIP"}}),
                "the variable A comes from fieldRef, which has no meaning without a cluster",
            ),
        ] {
            let said = from(source).unwrap_err();
            assert!(said.contains(problem), "{said}");
        }
        let said = of(&json!({"env": [{"name": "A", "value": "a\0"}]})).unwrap_err();
        assert_eq!(
            said,
            "c.env[0].value: the value of the variable A has a NUL (\\0), which no variable can hold; remove it"
        );
        let said = of(&json!({"envFrom": [{"secretRef": {"name": "gone"}}]})).unwrap_err();
        assert!(
            said.starts_with("c.envFrom[0].secretRef: no Secret 'gone'"),
            "{said}"
        );
    }

    #[test]
    fn values_are_not_shown() {
        let secret = Environment {
            variables: [("KEY".to_owned(), "hidden".to_owned())].into(),
            start: None,
        };
        assert_eq!(format!("{secret:?}"), r#"{"KEY"}"#);
    }
}
