//! A job that is looked at, with its pool.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::{DeserializeGuard, ObjectMeta};

use super::context::Context;
use super::status::{StatusWriter, Target};
use crate::api::conditions::{reasons, types};
use crate::api::job::{RolloutJob, RolloutJobStatus};
use crate::api::meta::{self, finalizers, labels};
use crate::api::pool::{SGLangPool, SGLangPoolSpec};
use crate::controllers::Error;
use crate::plan::job::PoolView;
use crate::resources::job::{JobInput, PoolBinding};
use crate::resources::secrets::JobSecrets;
use crate::resources::{Owner, Rendering};

/// A job that can be worked on.
pub(super) struct Subject<'a> {
    pub(super) job: &'a RolloutJob,
    pub(super) target: Target,
    pub(super) owner: Owner,
    /// Its status: the cache's, or our own last one while the cache is behind it.
    pub(super) before: RolloutJobStatus,
    /// Namespace and name.
    pool_key: (String, String),
    pool: Option<Arc<DeserializeGuard<SGLangPool>>>,
    is_pool_in_sight: bool,
}

impl<'a> Subject<'a> {
    pub(super) fn of(
        job: &'a RolloutJob,
        context: &Context,
        statuses: &StatusWriter,
    ) -> Result<Self, Error> {
        let target = target(&job.metadata)?;
        let owner = Owner {
            kind: meta::JOB_KIND,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            uid: target.uid.clone(),
            labels: job.metadata.labels.clone().unwrap_or_default(),
        };
        let pool_key = pool_key(job, &target);
        Ok(Self {
            before: statuses.base(&target, job.status.as_ref()),
            pool: (context.pool)(&pool_key.0, &pool_key.1),
            is_pool_in_sight: (context.looks_at)(&pool_key.0),
            pool_key,
            job,
            target,
            owner,
        })
    }

    /// What the pool that it uses is; none: there is none that can be read.
    pub(super) fn shared_pool(&self) -> Option<&SGLangPoolSpec> {
        let pool = self.pool.as_ref()?.0.as_ref().ok()?;
        Some(&pool.spec)
    }

    /// What the objects of an attempt are made from.
    pub(super) fn input<'b>(
        &'b self,
        pool: &'b SGLangPoolSpec,
        attempt: u32,
        secrets: &'b JobSecrets,
        rendering: &'b Rendering,
    ) -> JobInput<'b> {
        let spec = &self.job.spec;
        JobInput {
            owner: &self.owner,
            spec,
            pool: PoolBinding {
                name: &self.pool_key.1,
                namespace: &self.pool_key.0,
                spec: spec.pool.as_ref().unwrap_or(pool),
            },
            attempt,
            secrets,
            rendering,
        }
    }

    /// The attempt of the status.
    pub(super) fn attempt(&self) -> u32 {
        u32::try_from(self.before.attempt).unwrap_or(0)
    }

    /// What its pool says.
    pub(super) fn pool_view(&self) -> PoolView {
        if !self.is_pool_in_sight {
            return PoolView::OutOfSight;
        }
        let Some(pool) = &self.pool else {
            return PoolView::Missing;
        };
        let pool = match &pool.0 {
            Ok(pool) => pool,
            Err(error) => {
                return PoolView::Unready(format!("the pool cannot be read: {}", error.error));
            }
        };
        let is_ours = self.job.spec.pool.is_none() || is_made_for(pool, &self.target.uid);
        if pool.metadata.deletion_timestamp.is_some() || !is_ours {
            return PoolView::Missing;
        }
        let own = &self.target.namespace;
        if self.pool_key.0 != *own && !pool.spec.allowed_namespaces.contains(own) {
            return PoolView::NotAllowed;
        }
        let status = pool.status.as_ref();
        let ready = status.map_or(0, |status| status.ready_replicas);
        if pool.spec.suspend {
            PoolView::Unready("the pool is suspended".to_owned())
        } else if status.is_some_and(|status| has_unsuitable_engines(&status.conditions)) {
            PoolView::Unready(
                "engines of the pool lack what a job needs: its condition Stalled names them"
                    .to_owned(),
            )
        } else if ready > 0 {
            PoolView::Ready(ready)
        } else {
            PoolView::Unready("no engine of the pool takes work yet".to_owned())
        }
    }
}

/// Whether a pool is the job's own: another one of its name is somebody else's.
fn is_made_for(pool: &SGLangPool, uid: &str) -> bool {
    let labels = pool.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(labels::JOB_UID)) == Some(&uid.to_owned())
}

/// Namespace and name of a job's pool.
fn pool_key(job: &RolloutJob, target: &Target) -> (String, String) {
    match &job.spec.pool_ref {
        Some(reference) => (
            reference
                .namespace
                .clone()
                .unwrap_or_else(|| target.namespace.clone()),
            reference.name.clone(),
        ),
        None => (target.namespace.clone(), target.name.clone()),
    }
}

pub(super) fn target(metadata: &ObjectMeta) -> Result<Target, Error> {
    let text = |field: &Option<String>, what| field.clone().ok_or(Error::Incomplete { what });
    let version = metadata.resource_version.as_deref();
    Ok(Target {
        namespace: text(&metadata.namespace, "metadata.namespace")?,
        name: text(&metadata.name, "metadata.name")?,
        uid: text(&metadata.uid, "metadata.uid")?,
        resource_version: version.and_then(|version| version.parse().ok()),
    })
}

/// Whether a job is held until its teardown is complete.
pub(super) fn is_held(metadata: &ObjectMeta) -> bool {
    let mut all = metadata.finalizers.iter().flatten();
    all.any(|finalizer| finalizer == finalizers::TEARDOWN)
}

/// A job's router sends work to every engine of its list, also to one that cannot do it.
fn has_unsuitable_engines(conditions: &[Condition]) -> bool {
    let mut conditions = conditions.iter();
    conditions.any(|condition| {
        condition.type_ == types::STALLED
            && condition.status == "True"
            && condition.reason == reasons::ENGINE_UNSUITABLE
    })
}
