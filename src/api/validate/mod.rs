//! Offline verdicts on objects: the same rules as the API server's, and what CEL cannot see.
//!
//! In order: structure (types, bounds, unknown fields), CEL rules of the definition, pod templates and other schemaless parts, flags that
//! the operator owns. An object whose structure is wrong is not looked at further: rules would only repeat it.

mod defaults;
mod flags;
mod kinds;
mod metadata;
mod pod;
mod rule;
mod schemaless;
mod structure;
mod suggest;
mod templates;
mod violation;

use serde_json::Value;

use super::job::RolloutJobSpec;
use super::meta;
use super::pool::SGLangPoolSpec;

pub use violation::Violation;

use kinds::Kind;

/// What is wrong with an object that is about to be created. Kinds of others are only asked who they are.
pub fn validate(object: &Value) -> Vec<Violation> {
    check(object, None)
}

/// What is wrong with a change of an object: also the rules about what cannot change.
pub fn validate_update(object: &Value, old: &Value) -> Vec<Violation> {
    check(object, Some(old))
}

/// The object with the defaults of its schema, as the API server stores it.
pub fn with_defaults(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(kind) = Kind::of(&object) {
        defaults::fill(kind.schema(), &mut object);
    }
    object
}

fn check(object: &Value, old: Option<&Value>) -> Vec<Violation> {
    let mut found = metadata::check(object);
    let Some(kind) = Kind::of(object) else {
        found.extend(kinds::stranger(object));
        return found;
    };
    found.extend(kind.structure(object));
    if found.iter().any(Violation::is_error) {
        return found;
    }
    let stored = with_defaults(&metadata::named(object));
    found.extend(kind.rules(&stored, old.map(with_defaults).as_ref()));
    let spec = &object["spec"];
    let beyond = match kind.name {
        meta::POOL_KIND => beyond_rules::<SGLangPoolSpec>(spec, templates::pool),
        _ => beyond_rules::<RolloutJobSpec>(spec, templates::job),
    };
    found.extend(beyond);
    found
}

/// Checks on the typed spec. Structure was right, so that a spec that does not parse is a defect of ours; it is reported, not hidden.
fn beyond_rules<S: serde::de::DeserializeOwned>(
    spec: &Value,
    checks: impl FnOnce(&S) -> Vec<Violation>,
) -> Vec<Violation> {
    match serde_json::from_value::<S>(spec.clone()) {
        Ok(spec) => checks(&spec),
        Err(error) => vec![Violation::error("spec", format!("cannot be read: {error}"))],
    }
}
