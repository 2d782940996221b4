//! What cannot change once a job has started.
//!
//! Only rules at the root of the object can read the status, so the frozen fields are a list of rules there, one per field. A finished
//! job is unfrozen by an edit that changes `rerunId` too.

use serde_json::{Value, json};

/// A frozen field.
enum Frozen {
    /// Always there: required, or with a default.
    Value(&'static str),
    /// May be absent; being absent is a value too.
    Optional(&'static str),
    /// Always there in `generate.agentic`.
    AgenticValue(&'static str),
    /// May be absent in `generate.agentic`.
    AgenticOptional(&'static str),
}

use Frozen::{AgenticOptional, AgenticValue, Optional, Value as Always};

/// What may change at any time. `managedBy` has a rule of its own.
const FREE: [&str; 10] = [
    "activeDeadlineSeconds",
    "cleanup",
    "generate.agentic.warmPods",
    "managedBy",
    "preRunningDeadlineSeconds",
    "rerunId",
    "rollout.concurrency",
    "rollout.requestTimeoutSeconds",
    "suspend",
    "ttlSecondsAfterFinished",
];

/// What is frozen: with [`FREE`], every field of the spec.
const FROZEN: &[Frozen] = &[
    Optional("poolRef"),
    Optional("pool"),
    Always("dataset"),
    Always("rollout.steps"),
    Optional("rollout.asynchronous"),
    Always("rollout.batchSize"),
    Always("rollout.samplesPerPrompt"),
    Optional("rollout.overSampling"),
    Optional("rollout.filter"),
    Optional("rollout.partial"),
    Optional("rollout.errorBudget"),
    Optional("rollout.hooks"),
    Optional("sampling"),
    Optional("maxContextTokens"),
    Optional("replay"),
    Optional("evaluation"),
    Optional("trainer"),
    Optional("generate.singleTurn"),
    Optional("generate.multiTurn"),
    Optional("generate.benchmark"),
    Optional("generate.custom"),
    AgenticValue("agent"),
    AgenticOptional("sandbox"),
    AgenticOptional("parameters"),
    AgenticOptional("tokens"),
    AgenticOptional("templateFamily"),
    AgenticOptional("messageMatcher"),
    AgenticOptional("history"),
    AgenticOptional("samplePicker"),
    AgenticOptional("samplingPolicy"),
    AgenticOptional("maxSequenceTokens"),
    AgenticValue("sessionDeadlineSeconds"),
    AgenticValue("sessionsPerPod"),
    AgenticValue("concurrentSessionsPerPod"),
    AgenticOptional("resumable"),
    AgenticOptional("exposeLabel"),
    AgenticOptional("requireSessionToken"),
    AgenticOptional("networkPolicy"),
    Optional("plugins"),
    Optional("reward"),
    Optional("output"),
    Optional("teardown"),
    Optional("driver"),
    Always("backoffLimit"),
];

/// Whether the job has not started, or is finished and gets another `rerunId` in this edit. The status has a default, so it is there.
const EDITABLE: &str = "!has(oldSelf.status.startTime) || \
     has(oldSelf.status.completionTime) && self.spec.rerunId != oldSelf.spec.rerunId";

/// Whether a field of the spec, such as `rollout.concurrency`, may change after the start.
pub(crate) fn is_free(field: &str) -> bool {
    FREE.contains(&field)
}

/// The rules of the root of a `RolloutJob`.
pub(crate) fn freeze_rules() -> Vec<Value> {
    FROZEN.iter().map(freeze).collect()
}

/// The field of the spec that it is.
fn field_of(frozen: &Frozen) -> String {
    match frozen {
        Always(field) | Optional(field) => (*field).to_owned(),
        AgenticValue(member) | AgenticOptional(member) => format!("generate.agentic.{member}"),
    }
}

fn freeze(frozen: &Frozen) -> Value {
    let field = field_of(frozen);
    let (new, old) = (
        format!("self.spec.{field}"),
        format!("oldSelf.spec.{field}"),
    );
    // A switch from or to an agent is caught by the other members of `generate`, of which exactly one is set.
    let agentic = "!has(self.spec.generate.agentic) || !has(oldSelf.spec.generate.agentic)";
    let optional = format!("has({new}) == has({old}) && (!has({new}) || {new} == {old})");
    let unchanged = match frozen {
        Always(_) => format!("{new} == {old}"),
        Optional(_) => optional,
        AgenticValue(_) => format!("{agentic} || {new} == {old}"),
        AgenticOptional(_) => format!("{agentic} || {optional}"),
    };
    json!({
        "rule": format!("{EDITABLE} || {unchanged}"),
        "message": "frozen since the job started: create another job, or change rerunId too when this one is finished",
        "fieldPath": format!(".spec.{field}"),
        "reason": "FieldValueForbidden",
    })
}

/// The fields that may change, and those that may not.
#[cfg(test)]
pub(crate) fn fields() -> (Vec<String>, Vec<String>) {
    (
        FREE.map(str::to_owned).to_vec(),
        FROZEN.iter().map(field_of).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::crd;

    /// The fields of a schema that neither list has, nor has all fields below.
    fn forgotten(schema: &Value, at: &str, known: &[String], found: &mut Vec<String>) {
        for (name, member) in schema["properties"].as_object().unwrap() {
            let field = format!("{at}{name}");
            if known.contains(&field) {
                continue;
            }
            let below = format!("{field}.");
            if known.iter().any(|known| known.starts_with(&below)) {
                forgotten(member, &below, known, found);
            } else {
                found.push(field);
            }
        }
    }

    #[test]
    fn every_field_is_free_or_frozen() {
        let (free, frozen) = fields();
        let known = [free, frozen].concat();
        let definition = crd::job();
        let spec = &crd::schema(&definition)["properties"]["spec"];
        let mut found = Vec::new();
        forgotten(spec, "", &known, &mut found);
        assert_eq!(found, Vec::<String>::new());
        for field in &known {
            let pointer = format!("/properties/{}", field.replace('.', "/properties/"));
            assert!(spec.pointer(&pointer).is_some(), "{field}");
            assert_eq!(
                known.iter().filter(|other| *other == field).count(),
                1,
                "{field}"
            );
        }
    }
}
