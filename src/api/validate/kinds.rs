//! Which kind an object is, and the checks of our two.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::rule::CelRules;
use super::structure::Structure;
use super::touched::Touched;
use super::violation::Violation;
use super::{fit, misplaced, suggest};
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

    /// Structural errors, and the places that rules cannot rely on.
    pub(super) fn structure(&self, object: &Value) -> (Vec<Violation>, Touched) {
        let schema = self.schema();
        let mut structure = Structure::of(schema);
        for (name, value) in object.as_object().into_iter().flatten() {
            match name.as_str() {
                "apiVersion" | "kind" | "metadata" => {}
                "spec" | "status" => structure.check(&schema["properties"][name], value, name),
                _ => {
                    let hint = outside_of_spec(schema, name);
                    structure
                        .found
                        .push(Violation::error(name, format!("unknown field; {hint}")));
                }
            }
        }
        if object.get("spec").is_none() {
            structure.touched.value("spec");
            let required = texts(&schema["properties"]["spec"]["required"]);
            let needs = if required.is_empty() {
                String::new()
            } else {
                format!(" with {}", required.join(", "))
            };
            structure.found.push(Violation::error(
                "spec",
                format!("is required, an object{needs}"),
            ));
        }
        (structure.found, structure.touched)
    }

    /// The object without what does not fit its schema, and with what it lacks.
    pub(super) fn fitting(&self, object: &Value) -> Value {
        let schema = &self.schema()["properties"];
        let nothing = json!({});
        let mut fitting = object.clone();
        for part in ["spec", "status"] {
            let given = object.get(part).or((part == "spec").then_some(&nothing));
            let Some(given) = given else { continue };
            let fits =
                fit::part(&schema[part], given).or_else(|| fit::part(&schema[part], &nothing));
            fitting[part] = fits.unwrap_or_default();
        }
        fitting
    }

    /// Rules of the definition that a fitting object breaks, but for those that read what did not fit.
    pub(super) fn rules(
        &self,
        object: &Value,
        old: Option<&Value>,
        touched: &Touched,
    ) -> Vec<Violation> {
        self.rules.broken(object, old, touched)
    }
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// What to do with a field that is beside `spec` and not of the object.
fn outside_of_spec(schema: &Value, name: &str) -> String {
    let known = ["apiVersion", "kind", "metadata", "spec", "status"];
    if let Some(meant) = suggest::closest(name, known.into_iter()) {
        return format!("did you mean {meant}?");
    }
    match misplaced::home(schema, "", name) {
        Some(home) => home.to_string(),
        None if ["name", "namespace", "labels", "annotations"].contains(&name) => {
            "it belongs to metadata".to_owned()
        }
        None => format!("an object has {}", known.join(", ")),
    }
}

/// What is wrong with an object that looks like one of ours and is not.
pub(super) fn stranger(object: &Value) -> Option<Violation> {
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    let ours = [meta::POOL_KIND, meta::JOB_KIND];
    if version == meta::API_VERSION {
        if kind
            .strip_suffix("List")
            .is_some_and(|item| ours.contains(&item))
        {
            let message = format!(
                "{kind} is what a server answers: write apiVersion: v1 and kind: List, or each object by itself"
            );
            return Some(Violation::error("kind", message));
        }
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
