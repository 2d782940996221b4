//! Offline verdicts on objects: the same rules as the API server's, and what CEL cannot see.
//!
//! In order: structure (types, bounds, unknown fields), CEL rules of the definition, pod templates and other schemaless parts, flags that
//! the operator owns. Everything is said at once: what does not fit the schema is taken out, and the rest is looked at, but for what
//! depends on it. (The API server stops after the structure.)

mod aliases;
mod defaults;
mod fit;
mod flags;
mod instead;
mod kinds;
mod metadata;
mod misplaced;
mod pod;
mod process;
mod rule;
mod schemaless;
mod structure;
mod suggest;
mod templates;
mod touched;
mod violation;
mod words;

use serde_json::Value;

use super::job::RolloutJobSpec;
use super::manifest::path;
use super::meta;
use super::pool::SGLangPoolSpec;

pub use violation::Violation;

use kinds::Kind;
use touched::Touched;

/// What is wrong with an object that is about to be created. Kinds of others are only asked who they are.
pub fn validate(object: &Value) -> Vec<Violation> {
    examine(object).violations
}

/// What is wrong with a change of an object: also the rules about what cannot change.
pub fn validate_update(object: &Value, old: &Value) -> Vec<Violation> {
    check(object, Some(old)).violations
}

/// The verdict on an object that is about to be created, with what of it can be looked at further.
pub(crate) fn examine(object: &Value) -> Examined {
    check(object, None)
}

/// What to write in place of a text that does not match a pattern of the definitions.
pub fn words_of_pattern(pattern: &str) -> Option<&'static str> {
    words::pattern(pattern)
}

/// The candidate that a person most likely meant, if one is close.
pub(crate) fn closest<'a>(
    written: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    suggest::closest(written, candidates)
}

/// The object with the defaults of its schema, as the API server stores it.
pub fn with_defaults(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(kind) = Kind::of(&object) {
        defaults::fill(kind.schema(), &mut object);
    }
    object
}

/// A verdict, and the part of the object's spec that fits its schema.
#[derive(Debug)]
pub(crate) struct Examined {
    /// Everything that is wrong.
    pub(crate) violations: Vec<Violation>,
    /// The spec without what does not fit. Null for kinds of others.
    pub(crate) spec: Value,
    touched: Touched,
}

impl Examined {
    /// Whether something at, above or below a path does not fit, so that nothing more can be said about it.
    pub(crate) fn is_spoiled(&self, path: &str) -> bool {
        self.touched.is_near(path)
    }

    /// Whether an error is at a path or below it.
    pub(crate) fn has_error_within(&self, above: &str) -> bool {
        let mut errors = self
            .violations
            .iter()
            .filter(|violation| violation.is_error());
        errors.any(|error| path::is_within(&error.path, above))
    }
}

fn check(object: &Value, old: Option<&Value>) -> Examined {
    let mut violations = metadata::check(object);
    let Some(kind) = Kind::of(object) else {
        violations.extend(kinds::stranger(object));
        if object["apiVersion"] == "v1"
            && ["ConfigMap", "Secret"]
                .iter()
                .any(|kind| object["kind"] == *kind)
        {
            violations.extend(schemaless::key_value(object));
        }
        return Examined {
            violations,
            spec: Value::Null,
            touched: Touched::default(),
        };
    };
    let named = !violations.iter().any(Violation::is_error);
    let (structural, mut touched) = kind.structure(object);
    violations.extend(structural);
    if !named {
        touched.value("metadata");
    }
    let fitting = kind.fitting(object);
    let stored = with_defaults(&metadata::named(&fitting));
    violations.extend(kind.rules(&stored, old.map(with_defaults).as_ref(), &touched));
    let spec = fitting["spec"].clone();
    let beyond = match kind.name {
        meta::POOL_KIND => beyond_rules::<SGLangPoolSpec>(&spec, templates::pool),
        _ => beyond_rules::<RolloutJobSpec>(&spec, templates::job),
    };
    violations.extend(
        beyond
            .into_iter()
            .filter(|violation| !touched.spoils(&violation.path)),
    );
    Examined {
        violations,
        spec,
        touched,
    }
}

/// Checks on the typed spec. What is looked at fits its schema, so that a spec that does not parse is a defect of ours; it is reported,
/// not hidden.
fn beyond_rules<S: serde::de::DeserializeOwned>(
    spec: &Value,
    checks: impl FnOnce(&S) -> Vec<Violation>,
) -> Vec<Violation> {
    match serde_json::from_value::<S>(spec.clone()) {
        Ok(spec) => checks(&spec),
        Err(error) => vec![Violation::error("spec", format!("cannot be read: {error}"))],
    }
}
