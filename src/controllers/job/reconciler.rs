//! One look at one job.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::core::{DeserializeGuard, ObjectMeta};

use super::context::Context;
use super::drivers::{Driver, Heard};
use super::make::{self, Agents};
use super::memory::Memories;
use super::mounts::{self, Mounts};
use super::status::{StatusWriter, Target};
use super::subject::{Subject, is_held};
use super::{acts, lookup, observe, refusal, unread};
use crate::api::job::RolloutJob;
use crate::api::meta::{self, labels};
use crate::controllers::Error;
use crate::controllers::runtime::events;
use crate::controllers::runtime::reconcile::Next;
use crate::controllers::runtime::unreadable::Unreadable;
use crate::plan::job::{self as plan, Due, Input, Observed, Plan};
use crate::plan::pool::Trouble;
use crate::resources::job as resources;
use crate::resources::names;
use crate::resources::secrets::JobSecrets;

/// Reconciles jobs.
pub struct JobReconciler {
    context: Context,
    statuses: StatusWriter,
    memories: Memories,
    mounts: Mounts,
    unreadable: Unreadable,
}

impl JobReconciler {
    /// A reconciler.
    pub fn new(context: Context) -> Self {
        Self {
            context,
            statuses: StatusWriter::default(),
            memories: Memories::default(),
            mounts: Mounts::default(),
            unreadable: Unreadable::default(),
        }
    }

    /// A job is gone.
    pub fn forget(&self, uid: &str) {
        self.statuses.forget(uid);
        self.mounts.forget(uid);
        self.unreadable.forget(uid);
        self.context.applier.forget(uid);
        if let Some(driver) = self.memories.forget(uid) {
            self.context.drivers.forget(&driver);
        }
    }

    /// One look.
    pub async fn reconcile(&self, job: &DeserializeGuard<RolloutJob>) -> Result<Next, Error> {
        let metadata = job.meta();
        let job = match &job.0 {
            Ok(job) => job,
            Err(why) => {
                // What runs of it is another version's.
                let object = job.object_ref(&());
                self.unreadable.tell(&self.context.teller, &object, why);
                return self.look_at_unread(metadata).await;
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
        let mut refusal =
            refusal::of_spec(job).or_else(|| refusal::of_objects(&subject, &self.context));
        let (mut observed, look_again) = self.observe(&subject).await?;
        let mut plan = self.decide(&subject, &observed, refusal.as_ref());
        if plan.looks_up {
            refusal = lookup::trouble(&self.context, &subject, &plan).await?;
            plan = self.decide(&subject, &observed, refusal.as_ref());
        }
        let mut next = self.tell_status(&subject, &plan).await?;
        let acted = self.act(&subject, &plan).await;
        if self.note(&subject, &plan, &acted) {
            let subject = self.subject(job)?;
            observed.memory.refusal = self.memories.refusal(&subject.target.uid);
            plan.again = self
                .tell_news(&subject, &observed, refusal.as_ref())
                .await?;
        }
        acted?;
        if plan.clear && metadata.deletion_timestamp.is_some() {
            self.forget(&subject.target.uid);
        }
        for again in [plan.again, look_again].into_iter().flatten() {
            next = earlier(next, Next::After(again));
        }
        Ok(next)
    }

    /// A job that cannot be read stays as it is until it is deleted.
    async fn look_at_unread(&self, metadata: &ObjectMeta) -> Result<Next, Error> {
        if metadata.deletion_timestamp.is_none() {
            return Ok(Next::OnChange);
        }
        if is_held(metadata)
            && let Some(next) = unread::end(&self.context, metadata).await?
        {
            return Ok(next);
        }
        self.forget(metadata.uid.as_deref().unwrap_or_default());
        Ok(Next::OnChange)
    }

    /// Remembers what became of the acts; answers whether that is news.
    fn note(&self, subject: &Subject<'_>, plan: &Plan, acted: &Result<Agents, Error>) -> bool {
        let uid = &subject.target.uid;
        let hindrance = acted.as_ref().err().and_then(refusal::of_error);
        let is_hindered = self.memories.hinder(uid, hindrance);
        let is_refused = acted.as_ref().is_ok_and(|agents| {
            self.memories
                .note_agents(uid, &plan.agents, agents, Timestamp::now())
        });
        is_hindered || is_refused
    }

    /// Says what became of the acts; answers when to look again.
    async fn tell_news(
        &self,
        subject: &Subject<'_>,
        observed: &Observed,
        refusal: Option<&Trouble>,
    ) -> Result<Option<Duration>, Error> {
        let plan = self.decide(subject, observed, refusal);
        self.tell_status(subject, &plan).await?;
        Ok(plan.again)
    }

    fn subject<'a>(&self, job: &'a RolloutJob) -> Result<Subject<'a>, Error> {
        Subject::of(job, &self.context, &self.statuses)
    }

    /// What there is. Only a driver that no cache has is asked for at the API server: a cache that is behind must not begin an attempt.
    ///
    /// Answers when to look again, too: what holds up a Pod may be told nowhere that is watched.
    async fn observe(&self, subject: &Subject<'_>) -> Result<(Observed, Option<Duration>), Error> {
        let Subject { target, before, .. } = subject;
        let pods = (self.context.pods)(&target.namespace, &target.name);
        let pods = pods
            .iter()
            .filter(|pod| label(pod, labels::JOB_UID) == Some(target.uid.as_str()));
        let (mut drivers, mut agents) = (Vec::new(), Vec::new());
        let (mut stuck, mut stuck_agents) = (Vec::new(), Vec::new());
        for pod in pods {
            match label(pod, labels::COMPONENT) {
                Some("driver") => {
                    drivers.extend(observe::driver(pod));
                    stuck.extend(mounts::stuck(pod));
                }
                Some("agent") => {
                    agents.extend(observe::agent(pod));
                    stuck_agents.extend(mounts::stuck(pod));
                }
                _ => {}
            }
        }
        let attempt = before.attempt;
        let is_expected = before.start_time.is_some() && before.completion_time.is_none();
        let is_here = drivers.iter().any(|driver| driver.attempt == attempt);
        if is_expected && !is_here && self.memories.may_have_driver(&target.uid, attempt) {
            let name = names::driver(&target.name, subject.attempt());
            let found = acts::read_pod(&self.context.calls, target, &name).await?;
            let ours = found.filter(|pod| label(pod, labels::JOB_UID) == Some(&target.uid));
            drivers.extend(ours.as_ref().and_then(observe::driver));
        }
        // One speaks for all: they have the same volumes.
        stuck.extend(stuck_agents.into_iter().min_by_key(|pod| pod.since));
        let calls = &self.context.calls;
        let (missing, look_again) = self
            .mounts
            .of(calls, target, &stuck, Timestamp::now())
            .await;
        for driver in &mut drivers {
            driver.trouble = driver
                .trouble
                .take()
                .or_else(|| missing.get(&driver.uid).cloned());
        }
        for agent in &mut agents {
            agent.trouble = agent
                .trouble
                .take()
                .or_else(|| missing.get(&agent.uid).cloned());
        }
        let mut memory = self.memories.see(&target.uid, attempt, &agents);
        let current = drivers.iter().find(|driver| driver.attempt == attempt);
        let Heard {
            report,
            told,
            retired,
        } = self.follow(subject, current);
        (memory.told, memory.retired) = (told, retired);
        let observed = Observed {
            pool: subject.pool_view(),
            report,
            drivers,
            agents,
            memory,
        };
        Ok((observed, look_again))
    }

    /// Asks the driver of the current attempt, and no other. Answers what is known by it.
    fn follow(&self, subject: &Subject<'_>, driver: Option<&plan::DriverPod>) -> Heard {
        let (context, target) = (&self.context, &subject.target);
        let driver = driver
            .filter(|driver| driver.is_alive())
            .and_then(|driver| Some((driver, driver.address.clone()?)));
        let uid = driver.as_ref().map(|(driver, _)| driver.uid.clone());
        if let Some(before) = self.memories.follow(&target.uid, uid) {
            context.drivers.forget(&before);
        }
        let Some((driver, address)) = driver else {
            return Heard::default();
        };
        let attempt = u32::try_from(driver.attempt).unwrap_or(0);
        let (namespace, name) = (target.namespace.clone(), target.name.clone());
        let queue = Arc::clone(&context.queue);
        let asked = Driver {
            uid: driver.uid.clone(),
            address,
            token: JobSecrets::of(&context.key, &target.uid, attempt).control_token,
        };
        context.drivers.ask(asked, move || queue(&namespace, &name));
        context.drivers.known(&driver.uid)
    }

    fn decide(
        &self,
        subject: &Subject<'_>,
        observed: &Observed,
        refusal: Option<&Trouble>,
    ) -> Plan {
        let metadata = &subject.job.metadata;
        let now = Timestamp::now();
        let hindrance = self.memories.hindrance(&subject.target.uid);
        plan::decide(&Input {
            name: &subject.target.name,
            spec: &subject.job.spec,
            before: &subject.before,
            version: &self.context.rendering.version,
            generation: metadata.generation.unwrap_or_default(),
            created: metadata
                .creation_timestamp
                .as_ref()
                .map_or(now, |time| time.0),
            deletion: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            is_held: self.is_held(subject),
            refusal,
            hindrance: hindrance.as_ref(),
            observed,
            now,
        })
    }

    fn is_held(&self, subject: &Subject<'_>) -> bool {
        let Target {
            uid,
            resource_version,
            ..
        } = &subject.target;
        let memories = &self.memories;
        is_held(&subject.job.metadata) || memories.is_behind_hold(uid, *resource_version)
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
        if plan.hold && !self.is_held(subject) {
            let version = acts::hold(calls, &target, &job.metadata).await?;
            self.memories.holds(&target.uid, version);
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
                if plan.status.attempt != before.attempt {
                    self.memories.begins(&target.uid, plan.status.attempt);
                }
                let notes = events::notes(&before.conditions, &plan.status.conditions);
                let object = job.object_ref(&());
                self.context.teller.tell(&object, &notes);
                Ok(Next::OnChange)
            }
        }
    }

    async fn act(&self, subject: &Subject<'_>, plan: &Plan) -> Result<Agents, Error> {
        let context = &self.context;
        let (calls, target) = (&context.calls, &subject.target);
        let own_pool = resources::own_pool(&subject.owner, &subject.job.spec, &context.rendering);
        // First what goes: what is made may wait for it (a volume that an old driver has), or may never be made (a namespace that ends).
        if let Some(driver) = self.memories.driver(&target.uid) {
            context.drivers.tell(&driver, plan.agents.tell.clone());
            context.drivers.retire(&driver, plan.agents.retire.clone());
        }
        acts::delete_agents(calls, target, &plan.agents).await?;
        acts::delete_pods(calls, target, &plan.stop).await?;
        acts::release(calls, target, &plan.release).await?;
        if let Some(pool) = own_pool.as_ref().filter(|_| plan.pool) {
            make::apply(context, pool).await?;
        }
        let mut agents = Agents::Made;
        if plan.objects || !plan.agents.create.is_empty() {
            agents = make::make(context, &self.memories, subject, plan).await?;
        }
        if plan.clear {
            acts::clear(
                &context.applier,
                &context.children,
                target,
                own_pool.as_ref(),
            )
            .await?;
            acts::let_go(calls, target).await?;
        }
        if plan.delete {
            acts::delete_job(calls, target).await?;
        }
        Ok(agents)
    }
}

fn label<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn earlier(left: Next, right: Next) -> Next {
    match (left, right) {
        (Next::After(left), Next::After(right)) => Next::After(left.min(right)),
        (Next::OnChange, next) | (next, Next::OnChange) => next,
    }
}
