//! Which kind an object is, and the checks of our two.

use std::sync::LazyLock;

use serde_json::Value;

use super::rule::CelRules;
use super::structure::{Structure, Unknown};
use super::suggest;
use super::violation::Violation;
use crate::api::{crd, meta};

/// One of our kinds, with its definition ready for use.
pub(super) struct Kind {
    pub(super) name: &'static str,
    definition: Value,
    rules: CelRules,
}

static POOL: LazyLock<Kind> = LazyLock::new(|| Kind::new(meta::POOL_KIND, crd::pool()));
static JOB: LazyLock<Kind> = LazyLock::new(|| Kind::new(meta::JOB_KIND, crd::job()));

impl Kind {
    fn new(name: &'static str, definition: Value) -> Self {
        let rules = CelRules::compile(crd::schema(&definition));
        Self {
            name,
            definition,
            rules,
        }
    }

    /// Our kind that an object is, if it is one.
    pub(super) fn of(object: &Value) -> Option<&'static Self> {
        if object["apiVersion"] != meta::API_VERSION {
            return None;
        }
        match object["kind"].as_str() {
            Some(meta::POOL_KIND) => Some(&POOL),
            Some(meta::JOB_KIND) => Some(&JOB),
            _ => None,
        }
    }

    pub(super) fn schema(&self) -> &Value {
        crd::schema(&self.definition)
    }

    pub(super) fn structure(&self, object: &Value) -> Vec<Violation> {
        let mut structure = Structure::new(Unknown::Refused);
        let schema = self.schema();
        for (name, value) in object.as_object().into_iter().flatten() {
            match name.as_str() {
                "apiVersion" | "kind" | "metadata" => {}
                "spec" | "status" => structure.check(&schema["properties"][name], value, name),
                _ => {
                    let known = ["apiVersion", "kind", "metadata", "spec", "status"];
                    let hint = match suggest::closest(name, known.into_iter()) {
                        Some(meant) => format!("; did you mean {meant}?"),
                        None if schema["properties"]["spec"]["properties"]
                            .get(name)
                            .is_some() =>
                        {
                            "; it belongs below spec".to_owned()
                        }
                        None => String::new(),
                    };
                    structure
                        .found
                        .push(Violation::error(name, format!("unknown field{hint}")));
                }
            }
        }
        if object.get("spec").is_none() {
            structure
                .found
                .push(Violation::error("spec", "is required"));
        }
        structure.found
    }

    pub(super) fn rules(&self, object: &Value, old: Option<&Value>) -> Vec<Violation> {
        self.rules.broken(object, old)
    }
}

/// What is wrong with an object that looks like one of ours and is not.
pub(super) fn stranger(object: &Value) -> Option<Violation> {
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let ours = [meta::POOL_KIND, meta::JOB_KIND];
    if version == meta::API_VERSION {
        let hint = match suggest::closest(kind, ours.into_iter()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("{} has {}", meta::GROUP, ours.join(" and ")),
        };
        return Some(Violation::error(
            "kind",
            format!("unknown kind {kind}; {hint}"),
        ));
    }
    let group = version.split('/').next().unwrap_or_default();
    if group == meta::GROUP || ours.contains(&kind) {
        return Some(Violation::error(
            "apiVersion",
            format!(
                "unknown version {version} of {kind}; write {}",
                meta::API_VERSION
            ),
        ));
    }
    None
}
