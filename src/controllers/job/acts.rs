//! The calls that a plan asks for. All are safe to repeat.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
    PropagationPolicy,
};
use serde_json::{Value, json};

use super::status::{self, Target};
use crate::api::meta::{field_managers, finalizers, labels};
use crate::controllers::runtime::apply::Applier;
use crate::controllers::runtime::calls::{Calls, Effect, Identity};
use crate::controllers::runtime::children::Children;
use crate::controllers::runtime::prune;
use crate::controllers::{Class, Error};
use crate::plan::job::AgentsPlan;
use crate::resources::labels::Component;
use crate::resources::{Object, names};

/// Calls of one job that are made at once.
pub(super) const AT_ONCE: usize = 8;

/// Creates Pods. One that is there already is fine, if it is the job's.
pub(super) async fn create(calls: &Calls, uid: &str, pods: &[Object]) -> Result<(), Error> {
    let all: Vec<_> = pods
        .iter()
        .map(|pod| create_one(calls, uid, pod).boxed())
        .collect();
    some_at_once(all).await
}

async fn some_at_once(all: Vec<BoxFuture<'_, Result<(), Error>>>) -> Result<(), Error> {
    stream::iter(all)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

async fn create_one(calls: &Calls, uid: &str, pod: &Object) -> Result<(), Error> {
    let identity = Identity::of(&pod.value)?;
    match send(calls, &identity, pod, &params()).await {
        Ok(()) => tracing::info!(object = %identity, "created"),
        Err(error) if error.class() == Class::Conflict => {
            let (text, api) = (identity.to_string(), identity.api(calls.client()));
            let found = calls
                .call(Effect::Read, "read", &text, api.get_opt(&identity.name))
                .await?;
            let Some(found) = found else {
                return Err(Error::Leaving { object: text });
            };
            check(&found, uid, text)?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Whether the API server would take a Pod. Nothing is made.
pub(super) async fn would_create(calls: &Calls, pod: &Object) -> Result<(), Error> {
    let identity = Identity::of(&pod.value)?;
    let params = PostParams {
        dry_run: true,
        ..params()
    };
    match send(calls, &identity, pod, &params).await {
        // One of that name is there, or was a moment ago.
        Err(error) if error.class() == Class::Conflict => Ok(()),
        other => other,
    }
}

async fn send(
    calls: &Calls,
    identity: &Identity,
    pod: &Object,
    params: &PostParams,
) -> Result<(), Error> {
    let text = identity.to_string();
    let object: DynamicObject = serde_json::from_value(pod.value.clone())
        .map_err(|error| Error::call("create", &text, kube::Error::SerdeError(error)))?;
    let api = identity.api(calls.client());
    let call = api.create(params, &object);
    calls
        .call(Effect::Write, "create", &text, call)
        .await
        .map(drop)
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(field_managers::JOB.to_owned()),
        ..PostParams::default()
    }
}

/// A Pod of that name must be this job's, and stay.
fn check(found: &DynamicObject, uid: &str, object: String) -> Result<(), Error> {
    let label = |name: &str| found.metadata.labels.as_ref().and_then(|all| all.get(name));
    let is_ours = label(labels::APP_MANAGED_BY).is_some_and(|by| by == labels::OPERATOR);
    match label(labels::JOB_UID) {
        Some(owner) if owner == uid && found.metadata.deletion_timestamp.is_none() => Ok(()),
        // Of this job, or of one of the same name before it: it goes.
        Some(_) if is_ours => Err(Error::Leaving { object }),
        _ => Err(Error::Foreign {
            object,
            owner: "nobody that the operator knows".to_owned(),
        }),
    }
}

/// Reads a Pod that a cache does not have.
pub(super) async fn read_pod(
    calls: &Calls,
    target: &Target,
    name: &str,
) -> Result<Option<Pod>, Error> {
    let object = format!("Pod {}/{name}", target.namespace);
    calls
        .call(
            Effect::Read,
            "read",
            &object,
            pods(calls, target).get_opt(name),
        )
        .await
}

/// Deletes agents' Pods: by one call when all of them go, however many there are.
pub(super) async fn delete_agents(
    calls: &Calls,
    target: &Target,
    agents: &AgentsPlan,
) -> Result<(), Error> {
    if agents.all_go && agents.delete.len() > 1 {
        match delete_all_agents(calls, target).await {
            // Its role is that of an older installation.
            Err(error) if error.class() == Class::Forbidden => {}
            other => return other,
        }
    }
    delete_pods(calls, target, &agents.delete).await
}

async fn delete_all_agents(calls: &Calls, target: &Target) -> Result<(), Error> {
    let selector = format!(
        "{}={},{}={},{}={},{}={}",
        labels::APP_MANAGED_BY,
        labels::OPERATOR,
        labels::JOB,
        target.name,
        labels::JOB_UID,
        target.uid,
        labels::COMPONENT,
        Component::Agent.value(),
    );
    let object = format!("Pods of the agents of {target}");
    let (api, params) = (pods(calls, target), DeleteParams::background());
    let found = ListParams::default().labels(&selector);
    let call = api.delete_collection(&params, &found);
    let answer = calls.call(Effect::Write, "delete", &object, call).await;
    answer.map(drop)
}

/// Deletes Pods, each the one that was seen.
pub(super) async fn delete_pods(
    calls: &Calls,
    target: &Target,
    victims: &[(String, String)],
) -> Result<(), Error> {
    let all: Vec<_> = victims
        .iter()
        .map(|victim| delete_pod(calls, target, victim).boxed())
        .collect();
    some_at_once(all).await
}

async fn delete_pod(
    calls: &Calls,
    target: &Target,
    (name, uid): &(String, String),
) -> Result<(), Error> {
    let object = format!("Pod {}/{name}", target.namespace);
    let (api, params) = (pods(calls, target), this(uid));
    let call = api.delete(name, &params);
    let answer = calls.call(Effect::Write, "delete", &object, call).await;
    gone(answer.map(drop))
}

/// Lets drivers' Pods go: their last word is in the status.
pub(super) async fn release(
    calls: &Calls,
    target: &Target,
    drivers: &[(String, String)],
) -> Result<(), Error> {
    for (name, uid) in drivers {
        let object = format!("Pod {}/{name}", target.namespace);
        let api = pods(calls, target);
        let found = calls
            .call(Effect::Read, "read", &object, api.get_opt(name))
            .await?;
        let Some(pod) = found.filter(|pod| pod.metadata.uid.as_ref() == Some(uid)) else {
            continue;
        };
        let answer = without(&pod.metadata, finalizers::LAST_WORD, |patch| async move {
            api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .map(drop)
        });
        gone(calls.call(Effect::Write, "release", &object, answer).await)?;
    }
    Ok(())
}

/// Holds a job until its teardown is complete. Answers its new version.
pub(super) async fn hold(
    calls: &Calls,
    target: &Target,
    metadata: &kube::core::ObjectMeta,
) -> Result<Option<u64>, Error> {
    let mut all = metadata.finalizers.clone().unwrap_or_default();
    all.push(finalizers::TEARDOWN.to_owned());
    let patch = json!({"metadata": {
        "uid": target.uid, "resourceVersion": metadata.resource_version, "finalizers": all,
    }});
    let patch = Patch::Merge(&patch);
    let params = PatchParams::default();
    let api = status::api(calls, target);
    let call = api.patch(&target.name, &params, &patch);
    let answer = calls
        .call(Effect::Write, "hold", &target.to_string(), call)
        .await?;
    Ok(status::version(&answer))
}

/// Lets a job go.
pub(super) async fn let_go(calls: &Calls, target: &Target) -> Result<(), Error> {
    let api = status::api(calls, target);
    let object = target.to_string();
    let found = calls
        .call(Effect::Read, "read", &object, api.get_opt(&target.name))
        .await?;
    let Some(job) = found.filter(|job| job.metadata.uid.as_ref() == Some(&target.uid)) else {
        return Ok(());
    };
    let answer = without(&job.metadata, finalizers::TEARDOWN, |patch| async move {
        api.patch(&target.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map(drop)
    });
    gone(calls.call(Effect::Write, "let go", &object, answer).await)
}

/// Patches a finalizer away, if it is there, from this version of an object alone.
async fn without<F>(
    metadata: &kube::core::ObjectMeta,
    finalizer: &str,
    patch: impl FnOnce(Value) -> F,
) -> kube::Result<()>
where
    F: Future<Output = kube::Result<()>>,
{
    let all = metadata.finalizers.clone().unwrap_or_default();
    let rest: Vec<_> = all.iter().filter(|each| *each != finalizer).collect();
    if rest.len() == all.len() {
        return Ok(());
    }
    patch(json!({"metadata": {
        "uid": metadata.uid, "resourceVersion": metadata.resource_version, "finalizers": rest,
    }}))
    .await
}

/// Deletes the job itself.
pub(super) async fn delete_job(calls: &Calls, target: &Target) -> Result<(), Error> {
    let api = status::api(calls, target);
    let params = this(&target.uid);
    let call = api.delete(&target.name, &params);
    let answer = calls
        .call(Effect::Write, "delete", &target.to_string(), call)
        .await;
    gone(answer.map(drop))
}

/// Deletes everything that a job made but for Pods; policies last, as long as anything runs below them.
pub(super) async fn clear(
    applier: &Applier,
    children: &Children,
    target: &Target,
    own_pool: Option<&Object>,
) -> Result<(), Error> {
    let calls = applier.calls();
    if let Some(pool) = own_pool {
        delete_pool(calls, target, &Identity::of(&pool.value)?).await?;
    }
    delete_settings(applier, target).await?;
    let found = children.labelled(&target.namespace, labels::JOB, &target.name);
    let mut victims = prune::unwanted(&target.uid, &BTreeSet::new(), &found);
    victims.sort_by_key(|victim| victim.identity.kind == "NetworkPolicy");
    prune::delete(calls, &victims).await
}

/// Deletes a pool, if it is the job's.
pub(super) async fn delete_pool(
    calls: &Calls,
    target: &Target,
    identity: &Identity,
) -> Result<(), Error> {
    let api = identity.api(calls.client());
    let object = identity.to_string();
    let found = calls
        .call(Effect::Read, "read", &object, api.get_opt(&identity.name))
        .await?;
    let uid = found.as_ref().and_then(|found| {
        let owner = found.metadata.labels.as_ref()?.get(labels::JOB_UID)?;
        (*owner == target.uid).then_some(found.metadata.uid.as_deref()?)
    });
    let Some(uid) = uid else { return Ok(()) };
    let answer = calls
        .call(
            Effect::Write,
            "delete",
            &object,
            api.delete(&identity.name, &this(uid)),
        )
        .await;
    gone(answer.map(drop))
}

/// Settings of all attempts, and the Secret, which the operator may not read: somebody else's of that name stays.
async fn delete_settings(applier: &Applier, target: &Target) -> Result<(), Error> {
    let calls = applier.calls();
    let namespace = &target.namespace;
    let maps: Api<ConfigMap> = Api::namespaced(calls.client().clone(), namespace);
    let selector = format!(
        "{}={},{}={}",
        labels::APP_MANAGED_BY,
        labels::OPERATOR,
        labels::JOB_UID,
        target.uid
    );
    let params = ListParams::default().labels(&selector);
    let object = format!("ConfigMaps of {target}");
    let found = calls
        .call(Effect::Read, "list", &object, maps.list_metadata(&params))
        .await?;
    for map in found.items {
        let (Some(name), Some(uid)) = (map.metadata.name, map.metadata.uid) else {
            continue;
        };
        let object = format!("ConfigMap {namespace}/{name}");
        let answer = calls
            .call(
                Effect::Write,
                "delete",
                &object,
                maps.delete(&name, &this(&uid)),
            )
            .await;
        gone(answer.map(drop))?;
    }
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names::secret(&target.name),
            "namespace": namespace,
            "labels": {labels::APP_MANAGED_BY: labels::OPERATOR, labels::JOB_UID: target.uid},
        },
    });
    applier.delete_unread(&secret).await
}

fn pods(calls: &Calls, target: &Target) -> Api<Pod> {
    Api::namespaced(calls.client().clone(), &target.namespace)
}

/// The one that was seen.
fn this(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    }
}

/// What is gone, or another one by now, needs no more.
fn gone(answer: Result<(), Error>) -> Result<(), Error> {
    match answer {
        Err(error) if error.class() == Class::NotFound => Ok(()),
        other => other,
    }
}
