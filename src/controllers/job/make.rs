//! Builds what an attempt needs, applies it, and creates Pods: policies are there before them.

use futures_util::{FutureExt, StreamExt, stream};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::context::Context;
use super::memory::Memories;
use super::subject::Subject;
use super::{acts, refusal};
use crate::api::meta::{self, annotations, labels};
use crate::api::pool::SGLangPool;
use crate::controllers::Error;
use crate::controllers::runtime::apply::Outcome;
use crate::controllers::runtime::calls::Identity;
use crate::controllers::runtime::unread;
use crate::plan::job::Plan;
use crate::plan::pool::Trouble;
use crate::resources::job::{self as resources, AgentPod};
use crate::resources::secrets::JobSecrets;
use crate::resources::{Kind, Object, names};

/// What became of the Pods of agents.
#[derive(Debug)]
pub(super) enum Agents {
    /// They are there, or none was asked for.
    Made,
    /// The API server refuses them: the rest of the job goes on.
    Refused(Trouble),
}

/// The attempt's objects, then its driver and agents.
pub(super) async fn make(
    context: &Context,
    memories: &Memories,
    subject: &Subject<'_>,
    plan: &Plan,
) -> Result<Agents, Error> {
    let Some(pool) = subject.shared_pool() else {
        return Ok(Agents::Made);
    };
    let attempt = subject.attempt();
    let secrets = JobSecrets::of(&context.key, &subject.target.uid, attempt);
    let input = subject.input(pool, attempt, &secrets, &context.rendering);
    // What cannot be built any more was refused before anything began, or stays as it is.
    let Ok(objects) = resources::build(input) else {
        return Ok(Agents::Made);
    };
    let (objects, mut driver) = objects.split();
    let (unread, read): (Vec<_>, Vec<_>) = objects.iter().partition(|object| {
        let kind = object.kind();
        !context.children.has(kind.api_version(), kind.name())
    });
    // The driver's Pod says which settings were sent before it, also to a process that has just started and may not read them.
    let settings = unread::fingerprint(unread.iter().copied());
    driver.value["metadata"]["annotations"][annotations::SETTINGS] = json!(settings);
    // Policies are there before anything that they are about.
    let (policies, mut rest): (Vec<_>, Vec<_>) = read
        .into_iter()
        .partition(|object| object.kind() == Kind::NetworkPolicy);
    if noted(context, subject, attempt).as_ref() != Some(&settings) {
        let kept = |object: &&Object| plan.settings || object.kind() != Kind::ConfigMap;
        rest.extend(unread.into_iter().filter(kept));
    }
    for together in [policies, rest] {
        apply_all(context, &together).await?;
    }
    let uid = &subject.target.uid;
    if plan.driver {
        // From now on it may be there, whatever becomes of the call.
        memories.asked_for_driver(uid);
        acts::create(&context.calls, uid, &[driver]).await?;
    }
    let agents: Vec<Object> = plan
        .agents
        .create
        .iter()
        .filter_map(|(slot, generation)| {
            let pod = AgentPod {
                slot: *slot,
                generation: *generation,
                image: None,
            };
            resources::agent_pod(input, pod).ok().map(|(pod, _)| pod)
        })
        .collect();
    match acts::create(&context.calls, uid, &agents).await {
        Ok(()) => Ok(Agents::Made),
        Err(error) => match refusal::of_error(&error) {
            Some(trouble) => {
                tracing::warn!(job = %subject.target, %error, "agents' pods are refused");
                Ok(Agents::Refused(trouble))
            }
            None => Err(error),
        },
    }
}

/// The settings that the attempt's driver was made with.
fn noted(context: &Context, subject: &Subject<'_>, attempt: u32) -> Option<String> {
    let target = &subject.target;
    let pods = (context.pods)(&target.namespace, &target.name);
    let name = names::driver(&target.name, attempt);
    let driver = pods.iter().find(|pod| {
        pod.metadata.name.as_ref() == Some(&name)
            && pod.labels().get(labels::JOB_UID) == Some(&target.uid)
    })?;
    driver.annotations().get(annotations::SETTINGS).cloned()
}

/// Applies objects that do not need each other. The first of them that fails is told, so that the same failure has the same words each time.
async fn apply_all(context: &Context, objects: &[&Object]) -> Result<(), Error> {
    let all: Vec<_> = objects
        .iter()
        .map(|object| apply(context, object).boxed())
        .collect();
    let outcomes: Vec<_> = stream::iter(all).buffered(acts::AT_ONCE).collect().await;
    outcomes
        .into_iter()
        .try_for_each(|outcome| outcome.map(drop))
}

/// Applies an object: what is watched by what is there, the rest unread.
pub(super) async fn apply(context: &Context, object: &Object) -> Result<Outcome, Error> {
    let identity = Identity::of(&object.value)?;
    let (api_version, kind) = (object.kind().api_version(), object.kind().name());
    if kind == meta::POOL_KIND {
        let cached = (context.pool)(&identity.namespace, &identity.name);
        let cached = cached.and_then(|pool| Some(raw_pool(pool.0.as_ref().ok()?)));
        return context.applier.apply(&object.value, cached.as_ref()).await;
    }
    if !context.children.has(api_version, kind) {
        return context.applier.apply_unread(&object.value).await;
    }
    let cached = context.children.get(&identity);
    context.applier.apply(&object.value, cached.as_ref()).await
}

fn raw_pool(pool: &SGLangPool) -> Value {
    serde_json::to_value(pool).unwrap_or_default()
}
