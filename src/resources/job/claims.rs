//! What a job's Pods hold on to: its Secret, and the volume of its ledger.

use serde_json::{Value, json};

use super::JobInput;
use crate::api::meta::labels::RESERVED_PREFIX;
use crate::resources::labels::Component;
use crate::resources::pool::{CONTROL_TOKEN, opaque};
use crate::resources::{Kind, Object, names};

/// Key of the claim secret in the Secret.
pub(super) const CLAIM_SECRET: &str = "claim-secret";

pub(super) fn secret(input: JobInput<'_>) -> Object {
    let body = opaque(&[
        (CONTROL_TOKEN, &input.secrets.control_token),
        (CLAIM_SECRET, &input.secrets.claim_secret),
    ]);
    let name = names::secret(&input.owner.name);
    input.object(Kind::Secret, name, Some(Component::Driver), body)
}

/// One claim for all attempts.
pub(super) fn ledger(input: JobInput<'_>) -> Option<Object> {
    let template = &input.spec.driver.ledger.as_ref()?.volume_claim_template.0;
    let body = json!({"spec": template.get("spec").cloned().unwrap_or_else(|| json!({}))});
    let name = names::ledger(&input.owner.name);
    let mut claim = input.object(
        Kind::PersistentVolumeClaim,
        name,
        Some(Component::Driver),
        body,
    );
    for section in ["labels", "annotations"] {
        let mut members = claim.value["metadata"][section]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let wanted = template
            .get("metadata")
            .and_then(|metadata| metadata.get(section));
        for (key, value) in wanted.and_then(Value::as_object).into_iter().flatten() {
            if !key.starts_with(RESERVED_PREFIX) && !members.contains_key(key) {
                members.insert(key.clone(), value.clone());
            }
        }
        if !members.is_empty() {
            claim.value["metadata"][section] = Value::Object(members);
        }
    }
    Some(claim)
}
