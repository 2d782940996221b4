//! The end of a job that cannot be read: another version wrote it, or an older definition let it in.
//!
//! Everything that it made has its UID in a label, so that a deleted one holds up neither itself nor its namespace.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::core::ObjectMeta;
use serde_json::json;

use super::acts;
use super::context::Context;
use super::subject::target;
use crate::api::meta::{self, finalizers, labels};
use crate::controllers::Error;
use crate::controllers::runtime::calls::Identity;
use crate::controllers::runtime::reconcile::Next;
use crate::plan::job::{Remnant, Role, end_unread};

/// One look at a deleted job that is held. Answers when to look again; none: nothing of it is left.
pub(super) async fn end(context: &Context, metadata: &ObjectMeta) -> Result<Option<Next>, Error> {
    let target = target(metadata)?;
    let pods = (context.pods)(&target.namespace, &target.name);
    let remnants: Vec<_> = pods
        .iter()
        .filter(|pod| label(pod, labels::JOB_UID) == Some(&target.uid))
        .filter_map(|pod| remnant(pod))
        .collect();
    let plan = end_unread(&remnants, Timestamp::now());
    let calls = &context.calls;
    acts::delete_pods(calls, &target, &plan.stop).await?;
    acts::release(calls, &target, &plan.release).await?;
    if !plan.clear {
        return Ok(Some(plan.again.map_or(Next::OnChange, Next::After)));
    }
    // Whether it has one nobody can read: of its name, with its UID.
    let own_pool = Identity::of(&json!({
        "apiVersion": meta::API_VERSION,
        "kind": meta::POOL_KIND,
        "metadata": {"namespace": target.namespace, "name": target.name},
    }))?;
    acts::delete_pool(calls, &target, &own_pool).await?;
    acts::clear(&context.applier, &context.children, &target, None).await?;
    acts::let_go(calls, &target).await?;
    Ok(None)
}

fn remnant(pod: &Pod) -> Option<Remnant> {
    let metadata = &pod.metadata;
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let mut held_by = metadata.finalizers.iter().flatten();
    Some(Remnant {
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        role: match label(pod, labels::COMPONENT) {
            Some("driver") => Role::Driver,
            _ => Role::Other,
        },
        leaving: metadata.deletion_timestamp.as_ref().map(|time| time.0),
        has_ended: matches!(phase, Some("Succeeded" | "Failed")),
        is_held: held_by.any(|finalizer| finalizer == finalizers::LAST_WORD),
    })
}

fn label<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}
