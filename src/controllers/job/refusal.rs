//! Why a job cannot work, in the words that its condition has.

use super::context::Context;
use super::subject::Subject;
use crate::api::conditions::reasons;
use crate::api::job::RolloutJob;
use crate::api::support;
use crate::api::validate;
use crate::controllers::{Class, Error};
use crate::plan::pool::{Trouble, refusal_of_pods};
use crate::resources::job as resources;
use crate::resources::secrets::JobSecrets;

/// What is wrong with a spec, as the offline checks say it, and what is not built.
pub(super) fn of_spec(job: &RolloutJob) -> Option<Trouble> {
    let value = serde_json::to_value(job).unwrap_or_default();
    let invalid = validate::validate(&value);
    let unbuilt = support::job(&job.spec, support::Context::Cluster);
    for (reason, found) in [
        (reasons::INVALID_SPEC, invalid),
        (reasons::NOT_SUPPORTED, unbuilt),
    ] {
        let lines: Vec<_> = found
            .iter()
            .filter(|violation| violation.is_error())
            .map(ToString::to_string)
            .collect();
        if !lines.is_empty() {
            return Some(Trouble {
                reason,
                message: lines.join("; "),
            });
        }
    }
    None
}

/// Why no objects can be made of the spec and its pool.
pub(super) fn of_objects(subject: &Subject<'_>, context: &Context) -> Option<Trouble> {
    let spec = &subject.job.spec;
    let pool = spec.pool.as_ref().or_else(|| subject.shared_pool())?;
    let attempt = subject.attempt().max(1);
    let secrets = JobSecrets::of(&context.key, &subject.target.uid, attempt);
    let input = subject.input(pool, attempt, &secrets, &context.rendering);
    let refusal = resources::build(input).err()?;
    Some(Trouble {
        reason: refusal.reason(),
        message: refusal.to_string(),
    })
}

/// Which errors people are told in a condition: those that do not go away by themselves.
pub(super) fn of_error(error: &Error) -> Option<Trouble> {
    let message = error.to_string();
    let reason = match error.class() {
        Class::Invalid | Class::Foreign => reasons::APPLY_REFUSED,
        Class::Forbidden if is_class_missing(&message) => reasons::REFERENCE_NOT_FOUND,
        Class::Forbidden => refusal_of_pods(&message),
        _ => return None,
    };
    Some(Trouble { reason, message })
}

/// A `RuntimeClass` or a `PriorityClass`, in the API server's words.
fn is_class_missing(message: &str) -> bool {
    let is_about_a_class = message.contains("RuntimeClass") || message.contains("PriorityClass");
    is_about_a_class && (message.contains("not found") || message.contains("no PriorityClass"))
}
