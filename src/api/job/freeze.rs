//! What cannot change once a job has started.
//!
//! Only rules at the root of the object can read the status, so the frozen fields are a list of rules there, one per field. A finished
//! job is unfrozen by an edit that changes `rerunId` too.

use serde_json::{Value, json};

/// Fields that are frozen one by one. Of `rollout`, `concurrency` is left out, of `generate.agentic`, `warmPods`.
const FROZEN: &[&str] = &[
    "poolRef",
    "pool",
    "dataset",
    "rollout.steps",
    "rollout.asynchronous",
    "rollout.batchSize",
    "rollout.samplesPerPrompt",
    "rollout.overSampling",
    "rollout.filter",
    "rollout.partial",
    "rollout.errorBudget",
    "rollout.hooks",
    "sampling",
    "maxContextTokens",
    "replay",
    "evaluation",
    "trainer",
    "generate.singleTurn",
    "generate.multiTurn",
    "generate.benchmark",
    "generate.custom",
    "generate.agentic",
    "generate.agentic.agent",
    "generate.agentic.sandbox",
    "generate.agentic.parameters",
    "generate.agentic.tokens",
    "generate.agentic.templateFamily",
    "generate.agentic.messageMatcher",
    "generate.agentic.history",
    "generate.agentic.samplePicker",
    "generate.agentic.samplingPolicy",
    "generate.agentic.maxSequenceTokens",
    "generate.agentic.sessionDeadlineSeconds",
    "generate.agentic.sessionsPerPod",
    "generate.agentic.concurrentSessionsPerPod",
    "generate.agentic.resumable",
    "generate.agentic.exposeLabel",
    "generate.agentic.requireSessionToken",
    "generate.agentic.networkPolicy",
    "plugins",
    "reward",
    "output",
    "teardown",
    "driver",
    "backoffLimit",
];

/// Whether the old object has not started, or is finished and gets another `rerunId` in this edit.
const EDITABLE: &str = "!has(oldSelf.status) || !has(oldSelf.status.startTime) || \
     (has(oldSelf.status.completionTime) && \
     (has(self.spec.rerunId) ? self.spec.rerunId : '') != (has(oldSelf.spec.rerunId) ? oldSelf.spec.rerunId : ''))";

/// The rules of the root of a `RolloutJob`.
pub(crate) fn freeze_rules() -> Vec<Value> {
    FROZEN.iter().map(|field| freeze(field)).collect()
}

fn freeze(field: &str) -> Value {
    json!({
        "rule": format!("{EDITABLE} || {}", unchanged(field)),
        "message": format!("{field} cannot change once the job has started: change rerunId too when it is finished, or create another job"),
        "fieldPath": format!(".spec.{field}"),
        "reason": "FieldValueForbidden",
    })
}

/// Equal on both sides, or absent on both. The parents of a member are compared by rules of their own.
fn unchanged(field: &str) -> String {
    let (new, old) = (
        format!("self.spec.{field}"),
        format!("oldSelf.spec.{field}"),
    );
    // `generate.agentic` itself is compared by presence; its members one by one.
    if field == "generate.agentic" {
        return format!("has({new}) == has({old})");
    }
    let both = match field.strip_prefix("generate.agentic.") {
        Some(_) => "!has(self.spec.generate.agentic) || !has(oldSelf.spec.generate.agentic) || ",
        None => "",
    };
    format!("{both}(has({new}) == has({old}) && (!has({new}) || {new} == {old}))")
}
