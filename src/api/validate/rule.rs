//! The CEL rules of a definition, evaluated from the definition itself.

use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::Value;

use super::violation::Violation;

/// Compiled rules of one kind.
pub(super) struct CelRules(CompiledSchema);

impl CelRules {
    pub(super) fn compile(schema: &Value) -> Self {
        Self(compile_schema(schema))
    }

    /// Rules that an object breaks; with an old object also those about changes.
    pub(super) fn broken(&self, object: &Value, old: Option<&Value>) -> Vec<Violation> {
        match Validator::new().validate_compiled(&self.0, object, old) {
            Ok(()) => Vec::new(),
            Err(errors) => errors
                .into_iter()
                .map(|error| Violation::error(error.field_path, error.message))
                .collect(),
        }
    }
}
