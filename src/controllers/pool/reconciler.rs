//! One look at one pool.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::core::error_boundary::InvalidObject;
use kube::core::{DeserializeGuard, ObjectMeta};
use serde_json::{Value, json};

use super::ca;
use super::external::Surveys;
use super::states::States;
use super::status::{Change, StatusWriter, Target};
use super::verdict;
use crate::api::conditions::reasons;
use crate::api::meta::{self, annotations, labels};
use crate::api::pool::{SGLangPool, SGLangPoolSpec, SGLangPoolStatus};
use crate::controllers::runtime::apply::{Applier, Outcome};
use crate::controllers::runtime::calls::{Calls, Identity};
use crate::controllers::runtime::children::Children;
use crate::controllers::runtime::events;
use crate::controllers::runtime::prune;
use crate::controllers::runtime::reconcile::Next;
use crate::controllers::runtime::telling::Teller;
use crate::controllers::runtime::unread;
use crate::controllers::runtime::unreadable::{self, Unreadable};
use crate::controllers::{Class, Error};
use crate::plan::pool::{self as plan, Built, Observed, Trouble, Verdict};
use crate::resources::labels::Component;
use crate::resources::pool::{AGENTS_PORT, PoolInput, PoolObjects};
use crate::resources::secrets::OperatorKey;
use crate::resources::{Object, Owner, Rendering, labels as selectors, names, pool as resources};

/// What is known about a pool, by its namespace and name.
pub type OfPool<T> = Box<dyn Fn(&str, &str) -> T + Send + Sync>;

/// What the reconciler works with.
pub struct Context {
    /// The way to the API server.
    pub calls: Calls,
    /// Applies as the pool controller.
    pub applier: Applier,
    /// What was made for pools.
    pub children: Children,
    /// Engines' Pods, by namespace and pool.
    pub pods: OfPool<Vec<Arc<Pod>>>,
    /// Pods that ask external engines with their key.
    pub survey_pods: OfPool<Vec<Arc<Pod>>>,
    /// How many jobs use a pool.
    pub bound_jobs: OfPool<i32>,
    /// UID of a pool that is there.
    pub there: Arc<OfPool<Option<String>>>,
    /// Puts a pool into the queue.
    pub queue: Arc<OfPool<()>>,
    /// The external engines that are asked.
    pub surveys: Surveys,
    /// The sidecars of engines that are asked.
    pub states: States,
    /// The installation.
    pub rendering: Rendering,
    /// What tokens are derived from.
    pub key: OperatorKey,
    /// Tells events.
    pub teller: Teller,
}

/// Reconciles pools.
pub struct PoolReconciler {
    context: Context,
    statuses: StatusWriter,
    unreadable: Unreadable,
}

/// Objects that are made, and not applied yet.
struct Prepared(PoolObjects);

/// What applied objects say, and when to look again.
struct Applied {
    built: Built,
    next: Next,
}

impl PoolReconciler {
    /// A reconciler.
    pub fn new(context: Context) -> Self {
        Self {
            context,
            statuses: StatusWriter::default(),
            unreadable: Unreadable::default(),
        }
    }

    /// A pool is gone.
    pub fn forget(&self, uid: &str) {
        self.statuses.forget(uid);
        self.unreadable.forget(uid);
        self.context.applier.forget(uid);
        self.context.surveys.forget(uid);
        self.context.states.forget(uid);
    }

    /// One look.
    pub async fn reconcile(&self, pool: &DeserializeGuard<SGLangPool>) -> Result<Next, Error> {
        let metadata = pool.meta();
        if metadata.deletion_timestamp.is_some() {
            // Everything has the pool as its owner and goes with it.
            return Ok(Next::OnChange);
        }
        let pool = match &pool.0 {
            Ok(pool) => pool,
            Err(why) => {
                let object = pool.object_ref(&());
                self.unreadable.tell(&self.context.teller, &object, why);
                if let Err(error) = self.refuse_unreadable(metadata, why).await {
                    // What has a wrong type cannot be applied to, not even its status.
                    tracing::debug!(%error, "the status of a pool that cannot be read");
                }
                return Ok(Next::OnChange);
            }
        };
        let manager = pool.spec.managed_by.as_deref();
        if manager.is_some_and(|manager| manager != meta::CONTROLLER_NAME) {
            return Ok(Next::OnChange);
        }
        let target = target(metadata)?;
        let mut trusted = None;
        let (verdict, next) = match self.prepare(pool, &target) {
            Err(trouble) => (Verdict::Refused(trouble), Ok(Next::OnChange)),
            Ok(prepared) => match ca::of(&self.context.calls, &target, &pool.spec).await? {
                Err(trouble) => (Verdict::Refused(trouble), Ok(Next::After(ca::AGAIN))),
                Ok(ca) => {
                    trusted = ca;
                    match self.apply(prepared, &target).await {
                        Ok(applied) => (Verdict::Applied(applied.built), Ok(applied.next)),
                        Err(error) => match told(&error) {
                            Some(trouble) => (Verdict::Refused(trouble), Err(error)),
                            None => return Err(error),
                        },
                    }
                }
            },
        };
        let has_ca = trusted.is_some();
        let again = self.update_status(pool, &target, &verdict, trusted).await?;
        // Nobody watches users' objects.
        let again = again.or(has_ca.then_some(ca::RENEWED));
        match (next, again) {
            (Ok(Next::OnChange), Some(again)) => Ok(Next::After(again)),
            (next, _) => next,
        }
    }

    /// Validates and builds.
    fn prepare(&self, pool: &SGLangPool, target: &Target) -> Result<Prepared, Trouble> {
        verdict::on_spec(pool)?;
        let owner = Owner {
            kind: meta::POOL_KIND,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            uid: target.uid.clone(),
            labels: pool.metadata.labels.clone().unwrap_or_default(),
        };
        let live = self.deployment(target, &names::engine(&target.name));
        let input = PoolInput {
            owner: &owner,
            spec: &pool.spec,
            rendering: &self.context.rendering,
            key: &self.context.key,
            live_engines: live.as_ref(),
        };
        resources::build(input)
            .map(Prepared)
            .map_err(|refusal| Trouble {
                reason: refusal.reason(),
                message: refusal.to_string(),
            })
    }

    async fn apply(&self, prepared: Prepared, target: &Target) -> Result<Applied, Error> {
        let Prepared(objects) = prepared;
        let built = built(&objects, target);
        let mut next = Next::OnChange;
        let mut wanted = BTreeSet::new();
        let children = &self.context.children;
        let is_read =
            |object: &Object| children.has(object.kind().api_version(), object.kind().name());
        let mut objects = objects.into_objects();
        let settings = unread::fingerprint(objects.iter().filter(|object| !is_read(object)));
        let settled = note_settings(&mut objects, &settings, |last| self.cached(last))?;
        for object in objects {
            // Applied before the last object, which says so.
            if settled && !is_read(&object) {
                continue;
            }
            let outcome = self.apply_one(&object).await?;
            if let Outcome::Later(wait) = outcome {
                next = Next::After(wait);
            }
            wanted.insert(Identity::of(&object.value)?);
        }
        let found = children.labelled(&target.namespace, labels::POOL, &target.name);
        let victims = prune::unwanted(&target.uid, &wanted, &found);
        prune::delete(&self.context.calls, &victims).await?;
        Ok(Applied { built, next })
    }

    async fn apply_one(&self, object: &Object) -> Result<Outcome, Error> {
        let context = &self.context;
        let kind = object.kind();
        if !context.children.has(kind.api_version(), kind.name()) {
            return context.applier.apply_unread(&object.value).await;
        }
        let cached = self.cached(object)?;
        context.applier.apply(&object.value, cached.as_ref()).await
    }

    fn cached(&self, object: &Object) -> Result<Option<Value>, Error> {
        Ok(self.context.children.get(&Identity::of(&object.value)?))
    }

    /// Answers when to look again although nothing changes.
    async fn update_status(
        &self,
        pool: &SGLangPool,
        target: &Target,
        verdict: &Verdict,
        ca: Option<String>,
    ) -> Result<Option<Duration>, Error> {
        let cached = json(&pool.status);
        let base = self.statuses.base(target, cached);
        let before: SGLangPoolStatus = serde_json::from_value(base.clone()).unwrap_or_default();
        let generation = pool.metadata.generation.unwrap_or_default();
        let observed = Observed {
            external: self.survey(pool, target, verdict, ca),
            ..self.observe(target)
        };
        let now = Timestamp::now();
        let after = plan::status(&pool.spec, &before, generation, verdict, &observed, now);
        let change = self
            .statuses
            .write(&self.context.calls, target, &base, json(&after))
            .await?;
        if change == Change::Written {
            let notes = events::notes(&before.conditions, &after.conditions);
            self.context.teller.tell(&pool.object_ref(&()), &notes);
        }
        Ok(plan::look_again(&observed.pods, now))
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn deployment(&self, target: &Target, name: &str) -> Option<Value> {
        self.context.children.get(&Identity {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: target.namespace.clone(),
            name: name.to_owned(),
        })
    }

    /// An object that this version cannot read: its status is all that can be written (P10).
    async fn refuse_unreadable(
        &self,
        metadata: &ObjectMeta,
        why: &InvalidObject,
    ) -> Result<(), Error> {
        let target = target(metadata)?;
        let base = self.statuses.base(&target, Value::Null);
        let before: SGLangPoolStatus = serde_json::from_value(base.clone()).unwrap_or_default();
        let spec: SGLangPoolSpec = serde_json::from_value(json!({})).map_err(|source| {
            Error::call("read", "an empty pool", kube::Error::SerdeError(source))
        })?;
        let trouble = Trouble {
            reason: reasons::INVALID_SPEC,
            message: unreadable::message(why),
        };
        let generation = metadata.generation.unwrap_or_default();
        let observed = self.observe(&target);
        let verdict = Verdict::Refused(trouble);
        let after = plan::status(
            &spec,
            &before,
            generation,
            &verdict,
            &observed,
            Timestamp::now(),
        );
        self.statuses
            .write(&self.context.calls, &target, &base, json(&after))
            .await?;
        Ok(())
    }
}

/// Notes on the last object, a Deployment, which secrets and settings were applied before it. Answers whether the live one says the same:
/// then they need not be sent, also by a process that has just started and may not read them.
fn note_settings(
    objects: &mut [Object],
    settings: &str,
    live: impl FnOnce(&Object) -> Result<Option<Value>, Error>,
) -> Result<bool, Error> {
    let Some(last) = objects.last_mut() else {
        return Ok(false);
    };
    let live = live(last)?.unwrap_or_default();
    let same = live["metadata"]["annotations"][annotations::SETTINGS] == settings
        && live["metadata"]["ownerReferences"] == last.value["metadata"]["ownerReferences"];
    last.value["metadata"]["annotations"][annotations::SETTINGS] = json!(settings);
    Ok(same)
}

/// Which errors people are told in a condition: those that do not go away by themselves.
fn told(error: &Error) -> Option<Trouble> {
    let message = error.to_string();
    let reason = match error.class() {
        Class::Invalid | Class::Foreign => reasons::APPLY_REFUSED,
        Class::Forbidden => plan::refusal_of_pods(&message),
        _ => return None,
    };
    Some(Trouble { reason, message })
}

fn built(objects: &PoolObjects, target: &Target) -> Built {
    let engines = objects.engines.as_ref();
    let selector: Vec<_> = selectors::of_pool(&target.name, Component::Engine)
        .into_iter()
        .filter_map(|(label, value)| Some(format!("{label}={}", value.as_str()?)))
        .collect();
    Built {
        revision: engines.map(|engines| engines.revision.clone()),
        selector: engines.map(|_| selector.join(",")),
        endpoint: objects.router.as_ref().map(|router| {
            let (service, namespace) = (router.service.name(), &target.namespace);
            format!("http://{service}.{namespace}.svc:{AGENTS_PORT}")
        }),
        overruled: objects.overruled.clone(),
    }
}

fn target(metadata: &ObjectMeta) -> Result<Target, Error> {
    let text = |field: &Option<String>, what| field.clone().ok_or(Error::Incomplete { what });
    Ok(Target {
        namespace: text(&metadata.namespace, "metadata.namespace")?,
        name: text(&metadata.name, "metadata.name")?,
        uid: text(&metadata.uid, "metadata.uid")?,
        resource_version: metadata.resource_version.clone(),
    })
}

fn json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
