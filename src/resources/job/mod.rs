//! The objects of a job.
//!
//! ```text
//! Secret <job>-rollout            control token and claim secret of the attempt
//! ConfigMap <job>-driver-<n>      driver.json, router.yaml, the agents' parameters
//! Service <job>-sessions          what agents connect to
//! NetworkPolicy <job>-driver      in: the job's agents to the router, the controller to the driver's state
//! NetworkPolicy <job>-agent       in: nobody; out: the job's router and DNS
//! Pod <job>-driver-<n>            [router] [plugins] driver
//! Pod <job>-agent-<slot>-<gen>    shim, [session] [sandbox ...] agent
//! ```
//!
//! The driver Pod alone has the job as its owner: foreground deletion removes what is owned at once, and the teardown still needs the rest. Everything
//! is found by the job's uid.

mod agent_command;
mod agent_pod;
mod claims;
mod config;
mod data;
mod driver_pod;
mod driver_settings;
mod grace;
mod network_policies;
mod own_pool;
mod plugins;
mod sandbox;
mod service;

use serde_json::Value;

use super::secrets::JobSecrets;
use super::{Kind, Object, Owner, Refusal, Rendering, labels, names};
use crate::api::job::{Agentic, RolloutJobSpec};
use crate::api::pool::SGLangPoolSpec;

pub use agent_command::AGENT;
pub use agent_pod::{AgentPod, SESSION, agent_pod};
pub use config::STATUS_PORT;
pub use own_pool::own_pool;

/// The pool that a job uses.
#[derive(Clone, Copy, Debug)]
pub struct PoolBinding<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// What it is.
    pub spec: &'a SGLangPoolSpec,
}

/// What a job's objects are made from.
#[derive(Clone, Copy, Debug)]
pub struct JobInput<'a> {
    /// The job.
    pub owner: &'a Owner,
    /// What it wants.
    pub spec: &'a RolloutJobSpec,
    /// The pool that generates.
    pub pool: PoolBinding<'a>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The attempt's secrets.
    pub secrets: &'a JobSecrets,
    /// The installation.
    pub rendering: &'a Rendering,
}

/// What one attempt of a job has, in the order in which it is to be applied; the Pod is to be created, never applied.
#[derive(Clone, Debug, PartialEq)]
pub struct JobObjects {
    /// Who may connect to the driver.
    pub driver_policy: Object,
    /// What agents may reach; none: the job has no agent Pods.
    pub agent_policy: Option<Object>,
    /// Tokens.
    pub secret: Object,
    /// Settings of router, driver and agents.
    pub settings: Object,
    /// The router's name in DNS.
    pub service: Object,
    /// The ledger's volume; none: it is on the node.
    pub ledger: Option<Object>,
    /// The driver's Pod.
    pub driver: Object,
    /// Paths of what a template wanted and did not get.
    pub overruled: Vec<String>,
}

impl JobObjects {
    /// What is applied before the driver's Pod is created, in order, and the Pod.
    pub fn split(self) -> (Vec<Object>, Object) {
        let Self {
            driver_policy,
            agent_policy,
            secret,
            settings,
            service,
            ledger,
            driver,
            overruled: _,
        } = self;
        let mut objects = vec![driver_policy];
        objects.extend(agent_policy);
        objects.extend([secret, settings, service]);
        objects.extend(ledger);
        (objects, driver)
    }
}

/// The objects of one attempt of a job.
///
/// # Errors
/// The spec cannot run on a cluster.
pub fn build(input: JobInput<'_>) -> Result<JobObjects, Refusal> {
    data::check(input)?;
    let (driver, mut overruled) = driver_pod::build(input)?;
    if input.agents().is_some() {
        // What is wrong with agents is said before anything runs.
        let first = AgentPod {
            slot: 0,
            generation: 1,
            image: None,
        };
        let (_, more) = agent_pod(input, first)?;
        overruled.extend(more);
    }
    Ok(JobObjects {
        driver_policy: network_policies::driver(input),
        agent_policy: input
            .agents()
            .map(|agentic| network_policies::agents(input, agentic)),
        secret: claims::secret(input),
        settings: config::settings(input)?,
        service: service::router(input),
        ledger: claims::ledger(input),
        driver,
        overruled,
    })
}

impl<'a> JobInput<'a> {
    /// The agents, where they run in Pods of the job.
    fn agents(&self) -> Option<&'a Agentic> {
        let agentic = self.spec.generate.agentic.as_ref();
        agentic.filter(|agentic| agentic.agent.server.is_none())
    }

    fn object(
        &self,
        kind: Kind,
        name: String,
        component: Option<labels::Component>,
        body: Value,
    ) -> Object {
        let labels = labels::of_object(self.owner, component, self.rendering);
        Object::new(kind, self.owner, name, labels, body)
    }

    /// Host name of the job's router.
    fn router_host(&self) -> String {
        let name = names::sessions(&self.owner.name);
        self.rendering.service_host(&name, &self.owner.namespace)
    }
}
