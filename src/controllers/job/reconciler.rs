//! One look at one job.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::core::{DeserializeGuard, ObjectMeta};
use parking_lot::Mutex;
use serde_json::Value;

use super::drivers::{Driver, Drivers};
use super::status::{StatusWriter, Target};
use super::{acts, observe};
use crate::api::conditions::reasons;
use crate::api::job::{RolloutJob, RolloutJobStatus};
use crate::api::meta::{self, finalizers, labels};
use crate::api::pool::{SGLangPool, SGLangPoolSpec};
use crate::api::support;
use crate::api::validate;
use crate::controllers::runtime::apply::{Applier, Outcome};
use crate::controllers::runtime::calls::{Calls, Identity};
use crate::controllers::runtime::children::Children;
use crate::controllers::runtime::events::{self, Teller};
use crate::controllers::runtime::reconcile::Next;
use crate::controllers::{Class, Error};
use crate::plan::job::{self as plan, Due, Input, Memory, Observed, Plan, PoolView};
use crate::plan::pool::{Trouble, refusal_of_pods};
use crate::resources::job::{self as resources, AgentPod, JobInput, PoolBinding};
use crate::resources::secrets::{JobSecrets, OperatorKey};
use crate::resources::{Object, Owner, Rendering, names};

/// What is known about something, by namespace and name.
pub type OfJob<T> = Box<dyn Fn(&str, &str) -> T + Send + Sync>;

/// What is done with a job, by namespace and name.
pub type Enqueue = dyn Fn(&str, &str) + Send + Sync;

/// What the reconciler works with.
pub struct Context {
    /// The way to the API server.
    pub calls: Calls,
    /// Applies as the job controller.
    pub applier: Applier,
    /// What was made for jobs, Pods apart.
    pub children: Children,
    /// Pods, by namespace and job.
    pub pods: OfJob<Vec<Arc<Pod>>>,
    /// A pool.
    pub pool: OfJob<Option<Arc<DeserializeGuard<SGLangPool>>>>,
    /// Puts a job into the queue.
    pub queue: Arc<Enqueue>,
    /// The drivers that are asked.
    pub drivers: Drivers,
    /// The installation.
    pub rendering: Rendering,
    /// What tokens are derived from.
    pub key: OperatorKey,
    /// Tells events.
    pub teller: Teller,
}

/// Reconciles jobs.
pub struct JobReconciler {
    context: Context,
    statuses: StatusWriter,
    remembered: Mutex<HashMap<String, Remembered>>,
}

/// What is remembered of a job between two looks; all of it can be found out again.
#[derive(Clone, Default)]
struct Remembered {
    attempt: i32,
    /// UID of the driver that is asked.
    driver: Option<String>,
    agents: Memory,
    hindrance: Option<Trouble>,
}

/// A job that can be worked on.
struct Subject<'a> {
    job: &'a RolloutJob,
    target: Target,
    owner: Owner,
    before: RolloutJobStatus,
    /// Namespace and name.
    pool_key: (String, String),
    pool: Option<Arc<DeserializeGuard<SGLangPool>>>,
}

impl Subject<'_> {
    fn input<'b>(
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
}

impl JobReconciler {
    /// A reconciler.
    pub fn new(context: Context) -> Self {
        Self {
            context,
            statuses: StatusWriter::default(),
            remembered: Mutex::default(),
        }
    }

    /// A job is gone.
    pub fn forget(&self, uid: &str) {
        self.statuses.forget(uid);
        if let Some(known) = self.remembered.lock().remove(uid)
            && let Some(driver) = known.driver
        {
            self.context.drivers.forget(&driver);
        }
    }

    /// One look.
    pub async fn reconcile(&self, job: &DeserializeGuard<RolloutJob>) -> Result<Next, Error> {
        let metadata = job.meta();
        let job = match &job.0 {
            Ok(job) => job,
            Err(unreadable) => {
                // Another version wrote it: what runs of it is that version's.
                tracing::warn!(name = ?metadata.name, error = %unreadable.error, "a job cannot be read");
                return Ok(Next::OnChange);
            }
        };
        let manager = job.spec.managed_by.as_deref();
        if manager.is_some_and(|manager| manager != meta::CONTROLLER_NAME) {
            return Ok(Next::OnChange);
        }
        if metadata.deletion_timestamp.is_some() && !is_held(metadata) {
            self.forget(metadata.uid.as_deref().unwrap_or_default());
            return Ok(Next::OnChange);
        }
        let subject = self.subject(job)?;
        let refusal = refusal(job).or_else(|| self.unbuildable(&subject));
        let observed = self.observe(&subject).await?;
        let plan = self.decide(&subject, &observed, refusal.as_ref());
        let mut next = self.tell_status(&subject, &plan).await?;
        let acted = self.act(&subject, &plan).await;
        let hindrance = acted.as_ref().err().and_then(told);
        if self.note_hindrance(&subject.target.uid, hindrance) {
            let subject = self.subject(job)?;
            let again = self.decide(&subject, &observed, refusal.as_ref());
            self.tell_status(&subject, &again).await?;
        }
        acted?;
        if plan.clear && metadata.deletion_timestamp.is_some() {
            self.forget(&subject.target.uid);
        }
        if let Some(again) = plan.again {
            next = earlier(next, Next::After(again));
        }
        Ok(next)
    }

    fn subject<'a>(&self, job: &'a RolloutJob) -> Result<Subject<'a>, Error> {
        let target = target(&job.metadata)?;
        let owner = Owner {
            kind: meta::JOB_KIND,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            uid: target.uid.clone(),
            labels: job.metadata.labels.clone().unwrap_or_default(),
        };
        let pool_key = pool_key(job, &target);
        Ok(Subject {
            before: self.statuses.base(&target, job.status.as_ref()),
            pool: (self.context.pool)(&pool_key.0, &pool_key.1),
            pool_key,
            job,
            target,
            owner,
        })
    }

    /// What there is. Only a driver that no cache has is asked for at the API server: a cache that is behind must not begin an attempt.
    async fn observe(&self, subject: &Subject<'_>) -> Result<Observed, Error> {
        let Subject { target, before, .. } = subject;
        let pods = (self.context.pods)(&target.namespace, &target.name);
        let pods = pods
            .iter()
            .filter(|pod| label(pod, labels::JOB_UID) == Some(target.uid.as_str()));
        let (mut drivers, mut agents) = (Vec::new(), Vec::new());
        for pod in pods {
            match label(pod, labels::COMPONENT) {
                Some("driver") => drivers.extend(observe::driver(pod)),
                Some("agent") => agents.extend(observe::agent(pod)),
                _ => {}
            }
        }
        let attempt = before.attempt;
        let is_expected = before.start_time.is_some() && before.completion_time.is_none();
        if is_expected && !drivers.iter().any(|driver| driver.attempt == attempt) {
            let name = names::driver(&target.name, u32::try_from(attempt).unwrap_or(0));
            let found = acts::read_pod(&self.context.calls, target, &name).await?;
            let ours = found.filter(|pod| label(pod, labels::JOB_UID) == Some(&target.uid));
            drivers.extend(ours.as_ref().and_then(observe::driver));
        }
        self.remember(&target.uid, attempt, &agents);
        let current = drivers.iter().find(|driver| driver.attempt == attempt);
        let (report, memory) = self.follow(subject, current);
        Ok(Observed {
            pool: pool_view(subject),
            drivers,
            report,
            agents,
            memory,
        })
    }

    /// Asks the driver of the current attempt, and no other. Answers what it said last, and what is remembered of its agents.
    fn follow(
        &self,
        subject: &Subject<'_>,
        driver: Option<&plan::DriverPod>,
    ) -> (Option<plan::Report>, Memory) {
        let target = &subject.target;
        let context = &self.context;
        let driver = driver.filter(|driver| driver.is_alive());
        let mut remembered = self.remembered.lock();
        let known = remembered.entry(target.uid.clone()).or_default();
        let uid = driver.map(|driver| driver.uid.clone());
        if known.driver != uid
            && let Some(before) = known.driver.take()
        {
            context.drivers.forget(&before);
        }
        let Some((driver, address)) =
            driver.and_then(|driver| Some((driver, driver.address.clone()?)))
        else {
            return (None, known.agents.clone());
        };
        let attempt = u32::try_from(driver.attempt).unwrap_or(0);
        known.driver.clone_from(&uid);
        let (namespace, name) = (target.namespace.clone(), target.name.clone());
        let queue = Arc::clone(&context.queue);
        let asked = Driver {
            uid: driver.uid.clone(),
            address,
            token: JobSecrets::of(&context.key, &target.uid, attempt).control_token,
        };
        context.drivers.ask(asked, move || queue(&namespace, &name));
        let (report, told) = context.drivers.known(&driver.uid);
        known.agents.told = told;
        (report, known.agents.clone())
    }

    /// Remembers which generations were seen.
    fn remember(&self, uid: &str, attempt: i32, agents: &[plan::AgentPod]) {
        let mut remembered = self.remembered.lock();
        let known = remembered.entry(uid.to_owned()).or_default();
        if known.attempt != attempt {
            known.attempt = attempt;
            known.agents = Memory::default();
        }
        for pod in agents.iter().filter(|pod| pod.attempt == attempt) {
            let (slot, generation) = pod.holder;
            let highest = known.agents.highest.entry(slot).or_default();
            *highest = generation.max(*highest);
        }
    }

    fn decide(
        &self,
        subject: &Subject<'_>,
        observed: &Observed,
        refusal: Option<&Trouble>,
    ) -> Plan {
        let metadata = &subject.job.metadata;
        let now = Timestamp::now();
        let hindrance = {
            let remembered = self.remembered.lock();
            let known = remembered.get(&subject.target.uid);
            known.and_then(|known| known.hindrance.clone())
        };
        plan::decide(&Input {
            name: &subject.target.name,
            spec: &subject.job.spec,
            before: &subject.before,
            generation: metadata.generation.unwrap_or_default(),
            created: metadata
                .creation_timestamp
                .as_ref()
                .map_or(now, |time| time.0),
            deletion: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            is_held: is_held(metadata),
            refusal,
            hindrance: hindrance.as_ref(),
            observed,
            now,
        })
    }

    /// Holds the job, then writes its status: both before anything is made.
    async fn tell_status(&self, subject: &Subject<'_>, plan: &Plan) -> Result<Next, Error> {
        let Subject {
            job,
            target,
            before,
            ..
        } = subject;
        let calls = &self.context.calls;
        let mut target = target.clone();
        if plan.hold && !is_held(&job.metadata) {
            let version = acts::hold(calls, &target, &job.metadata).await?;
            self.statuses.note(&target.uid, version);
            target.resource_version = version;
        }
        match self
            .statuses
            .write(calls, &target, before, &plan.status)
            .await?
        {
            Due::Never => Ok(Next::OnChange),
            Due::In(wait) => Ok(Next::After(wait)),
            Due::Now => {
                let notes = events::notes(&before.conditions, &plan.status.conditions);
                let object = job.object_ref(&());
                self.context.teller.tell(&object, &notes).await;
                Ok(Next::OnChange)
            }
        }
    }

    async fn act(&self, subject: &Subject<'_>, plan: &Plan) -> Result<(), Error> {
        let context = &self.context;
        let (calls, target) = (&context.calls, &subject.target);
        let own_pool = resources::own_pool(&subject.owner, &subject.job.spec, &context.rendering);
        if let Some(pool) = own_pool.as_ref().filter(|_| plan.pool) {
            self.apply(pool).await?;
        }
        if plan.objects || !plan.agents.create.is_empty() {
            self.make(subject, plan).await?;
        }
        if let Some(driver) = self.asked(&target.uid) {
            context.drivers.tell(&driver, plan.agents.tell.clone());
        }
        acts::delete_pods(calls, target, &plan.agents.delete).await?;
        acts::delete_pods(calls, target, &plan.stop).await?;
        acts::release(calls, target, &plan.release).await?;
        if plan.clear {
            acts::clear(calls, &context.children, target, own_pool.as_ref()).await?;
            acts::let_go(calls, target).await?;
        }
        if plan.delete {
            acts::delete_job(calls, target).await?;
        }
        Ok(())
    }

    /// Builds and applies the attempt's objects, then creates Pods: policies are there before them.
    async fn make(&self, subject: &Subject<'_>, plan: &Plan) -> Result<(), Error> {
        let context = &self.context;
        let Some(pool) = subject.pool.as_ref().and_then(|pool| pool.0.as_ref().ok()) else {
            return Ok(());
        };
        let attempt = u32::try_from(subject.before.attempt).unwrap_or(0);
        let secrets = JobSecrets::of(&context.key, &subject.target.uid, attempt);
        let input = subject.input(&pool.spec, attempt, &secrets, &context.rendering);
        // What cannot be built any more was refused before anything began, or stays as it is.
        let Ok(objects) = resources::build(input) else {
            return Ok(());
        };
        let (objects, driver) = objects.split();
        for object in &objects {
            self.apply(object).await?;
        }
        let uid = &subject.target.uid;
        if plan.driver {
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
        acts::create(&context.calls, uid, &agents).await
    }

    /// Why no objects can be made of the spec.
    fn unbuildable(&self, subject: &Subject<'_>) -> Option<Trouble> {
        let context = &self.context;
        let spec = &subject.job.spec;
        let shared = subject.pool.as_ref().and_then(|pool| pool.0.as_ref().ok());
        let pool = spec.pool.as_ref().or(shared.map(|pool| &pool.spec))?;
        let attempt = u32::try_from(subject.before.attempt).unwrap_or(0).max(1);
        let secrets = JobSecrets::of(&context.key, &subject.target.uid, attempt);
        let input = subject.input(pool, attempt, &secrets, &context.rendering);
        let refusal = resources::build(input).err()?;
        Some(Trouble {
            reason: refusal.reason(),
            message: refusal.to_string(),
        })
    }

    async fn apply(&self, object: &Object) -> Result<Outcome, Error> {
        let context = &self.context;
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

    fn asked(&self, uid: &str) -> Option<String> {
        self.remembered.lock().get(uid)?.driver.clone()
    }

    /// Remembers why acts failed; answers whether that is news.
    fn note_hindrance(&self, uid: &str, hindrance: Option<Trouble>) -> bool {
        let mut remembered = self.remembered.lock();
        let known = remembered.entry(uid.to_owned()).or_default();
        let is_news = known.hindrance != hindrance;
        known.hindrance = hindrance;
        is_news
    }
}

/// What is wrong with a spec, as the offline checks say it, and what is not built.
fn refusal(job: &RolloutJob) -> Option<Trouble> {
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

fn pool_view(subject: &Subject<'_>) -> PoolView {
    let Some(pool) = &subject.pool else {
        return PoolView::Missing;
    };
    let pool = match &pool.0 {
        Ok(pool) => pool,
        Err(error) => {
            return PoolView::Unready(format!("the pool cannot be read: {}", error.error));
        }
    };
    if pool.metadata.deletion_timestamp.is_some() {
        return PoolView::Missing;
    }
    let own = &subject.target.namespace;
    if subject.pool_key.0 != *own && !pool.spec.allowed_namespaces.contains(own) {
        return PoolView::NotAllowed;
    }
    let ready = pool
        .status
        .as_ref()
        .map_or(0, |status| status.ready_replicas);
    if pool.spec.suspend {
        PoolView::Unready("the pool is suspended".to_owned())
    } else if ready > 0 {
        PoolView::Ready(ready)
    } else {
        PoolView::Unready("no engine of the pool takes work yet".to_owned())
    }
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

/// Which errors people are told in a condition: those that do not go away by themselves.
fn told(error: &Error) -> Option<Trouble> {
    let message = error.to_string();
    let reason = match error.class() {
        Class::Invalid | Class::Foreign => reasons::APPLY_REFUSED,
        Class::Forbidden => refusal_of_pods(&message),
        _ => return None,
    };
    Some(Trouble { reason, message })
}

fn target(metadata: &ObjectMeta) -> Result<Target, Error> {
    let text = |field: &Option<String>, what| field.clone().ok_or(Error::Incomplete { what });
    let version = metadata.resource_version.as_deref();
    Ok(Target {
        namespace: text(&metadata.namespace, "metadata.namespace")?,
        name: text(&metadata.name, "metadata.name")?,
        uid: text(&metadata.uid, "metadata.uid")?,
        resource_version: version.and_then(|version| version.parse().ok()),
    })
}

fn is_held(metadata: &ObjectMeta) -> bool {
    let mut all = metadata.finalizers.iter().flatten();
    all.any(|finalizer| finalizer == finalizers::TEARDOWN)
}

fn label<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn raw_pool(pool: &SGLangPool) -> Value {
    serde_json::to_value(pool).unwrap_or_default()
}

fn earlier(left: Next, right: Next) -> Next {
    match (left, right) {
        (Next::After(left), Next::After(right)) => Next::After(left.min(right)),
        (Next::OnChange, next) | (next, Next::OnChange) => next,
    }
}
