//! Which places of an object are not what their schema says, so that rules that read them have no answer.
//!
//! An object with one wrong field is still looked at as a whole: every other rule is evaluated on what fits (see [`super::fit`]). A rule
//! that reads a wrong place would only repeat the error, or say something untrue, and is left out.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::api::manifest::path;

/// Places that rules cannot rely on.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    values: BTreeSet<String>,
    /// Objects with an unknown field, and the fields that they have: the unknown one may be meant for any that they have not.
    parents: Vec<(String, BTreeSet<String>)>,
}

impl Touched {
    /// The value at a path is wrong or missing.
    pub(super) fn value(&mut self, at: &str) {
        self.values.insert(at.to_owned());
    }

    /// An object has an unknown field.
    pub(super) fn absent(&mut self, at: &str, object: &Map<String, Value>) {
        self.parents
            .push((at.to_owned(), object.keys().cloned().collect()));
    }

    /// Whether what is at `read` cannot be relied on.
    pub(super) fn spoils(&self, read: &str) -> bool {
        self.values.iter().any(|wrong| path::is_within(read, wrong))
            || self.parents.iter().any(|(parent, present)| {
                path::first_below(parent, read).is_some_and(|member| !present.contains(member))
            })
    }

    /// Whether something wrong is at a place, above it or below it.
    pub(super) fn is_near(&self, at: &str) -> bool {
        self.spoils(at) || self.values.iter().any(|wrong| path::is_within(wrong, at))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wrong_value_spoils_what_is_below_and_an_unknown_field_what_is_absent_beside() {
        let mut touched = Touched::default();
        touched.value("spec.rollout.batchSize");
        let generate = json!({"agentic": {}, "singel": {}});
        touched.absent("spec.generate", generate.as_object().expect("an object"));
        let spoiled = [
            "spec.rollout.batchSize",
            "spec.rollout.batchSize.x",
            "spec.generate.singleTurn",
            "spec.generate.singleTurn.x",
        ];
        let sound = [
            "spec.rollout",
            "spec.rollout.batchSizes",
            "spec.generate",
            "spec.generate.agentic.agent",
        ];
        for read in spoiled {
            assert!(touched.spoils(read), "{read}");
        }
        for read in sound {
            assert!(!touched.spoils(read), "{read}");
        }
        assert!(touched.is_near("spec.rollout"));
        assert!(!touched.is_near("spec.generate.agentic"));
    }
}
