//! CEL rules, written beside the types they are about.
//!
//! A type names its rule function in `#[schemars(transform = ...)]`; the rules become `x-kubernetes-validations` of its schema, in
//! order. Each rule has a message that says what to write instead, and where it helps the path of the field to change.

use schemars::Schema;
use serde_json::{Value, json};

/// The keyword that holds the rules of a schema.
pub(crate) const VALIDATIONS: &str = "x-kubernetes-validations";

/// Appends rules to a schema.
pub(crate) struct Rules<'a>(&'a mut Schema);

impl<'a> Rules<'a> {
    pub(crate) fn of(schema: &'a mut Schema) -> Self {
        Self(schema)
    }

    /// A rule about the object as a whole.
    pub(crate) fn rule(self, rule: &str, message: &str) -> Self {
        self.push(json!({"rule": rule, "message": message}))
    }

    /// A rule that blames one field (`name`, or `name.member`) of the object.
    pub(crate) fn field(self, field: &str, rule: &str, message: &str) -> Self {
        self.push(json!({"rule": rule, "message": message, "fieldPath": format!(".{field}")}))
    }

    /// Exactly one of the optional fields is set.
    pub(crate) fn exactly_one(self, fields: &[&str], message: &str) -> Self {
        self.push(json!({"rule": format!("{} == 1", count_set(fields)), "message": message}))
    }

    /// At most one of the optional fields is set.
    pub(crate) fn at_most_one(self, fields: &[&str], message: &str) -> Self {
        self.push(json!({"rule": format!("{} <= 1", count_set(fields)), "message": message}))
    }

    fn push(self, rule: Value) -> Self {
        let rules = self
            .0
            .ensure_object()
            .entry(VALIDATIONS)
            .or_insert_with(|| json!([]));
        if let Value::Array(rules) = rules {
            rules.push(rule);
        }
        self
    }
}

fn count_set(fields: &[&str]) -> String {
    fields
        .iter()
        .map(|field| format!("(has(self.{field}) ? 1 : 0)"))
        .collect::<Vec<_>>()
        .join(" + ")
}

/// Takes an enum's own description away, so that an optional field of that type keeps its own.
pub(crate) fn undescribed(schema: &mut Schema) {
    schema.ensure_object().remove("description");
}
