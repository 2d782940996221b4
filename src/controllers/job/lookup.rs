//! Whether an attempt can begin: what the spec names is there, and the API server takes its Pods.
//!
//! Looked up once per attempt, and again while something is missing: nobody watches users' objects. Secrets may not be read; a Pod that waits
//! for one says so itself.

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::Api;

use super::context::Context;
use super::subject::Subject;
use super::{acts, refusal};
use crate::api::conditions::reasons;
use crate::api::references::{self, Reference, Target};
use crate::controllers::Error;
use crate::controllers::runtime::calls::Effect;
use crate::plan::job::Plan;
use crate::plan::pool::Trouble;
use crate::resources::job::{self as resources, AgentPod};
use crate::resources::secrets::JobSecrets;

/// Path of what the job's own pool names: the pool says what it misses.
const OWN_POOL: &str = "spec.pool.";

/// Why an attempt cannot begin.
pub(super) async fn trouble(
    context: &Context,
    subject: &Subject<'_>,
    plan: &Plan,
) -> Result<Option<Trouble>, Error> {
    let named = references::job(&subject.job.spec);
    let looks: Vec<_> = named
        .iter()
        .filter(|reference| !reference.path.starts_with(OWN_POOL))
        .map(|reference| of_reference(context, subject, reference).boxed())
        .collect();
    let answers: Vec<_> = stream::iter(looks).buffered(acts::AT_ONCE).collect().await;
    for answer in answers {
        let trouble = answer?;
        if trouble.is_some() {
            return Ok(trouble);
        }
    }
    if plan.status.attempt == subject.before.attempt {
        return Ok(None);
    }
    refused(context, subject).await
}

async fn of_reference(
    context: &Context,
    subject: &Subject<'_>,
    reference: &Reference,
) -> Result<Option<Trouble>, Error> {
    let missing = missing(context, subject, reference).await?;
    Ok(missing.map(|message| Trouble {
        reason: reasons::REFERENCE_NOT_FOUND,
        message: format!("{}: {message}", reference.path),
    }))
}

async fn missing(
    context: &Context,
    subject: &Subject<'_>,
    reference: &Reference,
) -> Result<Option<String>, Error> {
    let namespace = &subject.target.namespace;
    let (calls, name) = (&context.calls, &reference.name);
    let object = format!("{} {namespace}/{name}", reference.target.kind());
    let is_there = match reference.target {
        Target::ConfigMap => {
            let api: Api<ConfigMap> = Api::namespaced(calls.client().clone(), namespace);
            let found = calls.call(Effect::Read, "read", &object, api.get_opt(name));
            let Some(found) = found.await? else {
                return Ok(Some(gone(&object)));
            };
            let Some(key) = &reference.key else {
                return Ok(None);
            };
            let text = found.data.is_some_and(|data| data.contains_key(key));
            let bytes = found.binary_data.is_some_and(|data| data.contains_key(key));
            if !text && !bytes {
                return Ok(Some(format!(
                    "the {object} has no key {key}; add it, or name another"
                )));
            }
            true
        }
        Target::Claim => {
            let api: Api<PersistentVolumeClaim> =
                Api::namespaced(calls.client().clone(), namespace);
            let found = calls.call(Effect::Read, "read", &object, api.get_metadata_opt(name));
            found.await?.is_some()
        }
        // The pool has conditions of its own.
        Target::Pool | Target::Secret => true,
    };
    Ok((!is_there).then(|| gone(&object)))
}

fn gone(object: &str) -> String {
    format!("there is no {object}; create it, or name another")
}

/// Why the API server would not take the attempt's Pods: a `RuntimeClass` that is not there, a policy, a quota.
async fn refused(context: &Context, subject: &Subject<'_>) -> Result<Option<Trouble>, Error> {
    let Some(pool) = subject.shared_pool() else {
        return Ok(None);
    };
    let attempt = subject.attempt().saturating_add(1);
    let secrets = JobSecrets::of(&context.key, &subject.target.uid, attempt);
    let input = subject.input(pool, attempt, &secrets, &context.rendering);
    let Ok(objects) = resources::build(input) else {
        return Ok(None);
    };
    let mut pods = vec![objects.driver];
    // A name that no agent has.
    let never = AgentPod {
        slot: 0,
        generation: 0,
        image: None,
    };
    pods.extend(resources::agent_pod(input, never).ok().map(|(pod, _)| pod));
    let tries = pods
        .iter()
        .map(|pod| acts::would_create(&context.calls, pod));
    for taken in join_all(tries).await {
        if let Err(error) = taken {
            return match refusal::of_error(&error) {
                Some(trouble) => Ok(Some(trouble)),
                None => Err(error),
            };
        }
    }
    Ok(None)
}
