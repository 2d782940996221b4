//! The objects of a pool.
//!
//! ```text
//! Deployment <pool>-engine    Service <pool>-engines (headless: its names are the engine list)    PodDisruptionBudget, NetworkPolicy <pool>-engine
//! Deployment <pool>-router    Service <pool>-router, Secret <pool>-router                         when the spec asks for a router
//! Deployment <pool>-survey    NetworkPolicy <pool>-survey                                         for external engines that ask for a key
//! ServiceAccount <pool>-pool  ConfigMap <pool>-simulator                                          the latter for simulated engines
//! ```
//!
//! External engines have none of this but the router and the survey. All of it has the pool as its owner and goes with it.

mod account;
mod budget;
mod deployment;
mod engine_pod;
mod flags;
mod model;
mod network_policy;
mod router;
mod services;
mod simulator;
mod survey;
mod tokenizer;

use serde_json::Value;

use super::secrets::OperatorKey;
use super::{Object, Owner, Refusal, Rendering, labels, revision};
use crate::api::pool::{Engine, External, SGLangPoolSpec};

pub use deployment::keep_engines;
pub use engine_pod::ENGINE;
pub(super) use network_policy::{dns, from_controller, port};
pub use router::{AGENTS_PORT, CONTROL_PORT};
pub(super) use router::{
    CONTROL_TOKEN, SECRETS, engine_ca, engine_key, liveness, opaque, state_port,
};
pub use survey::SURVEY_PORT;
pub(super) use tokenizer::{named_files, served_by_engines, tokenizer_url};

/// Port of an engine.
pub const ENGINE_PORT: u16 = 30000;
/// Port of the engine's sidecar.
pub const SIDECAR_PORT: u16 = 30001;

/// What a pool's objects are made from.
#[derive(Clone, Copy, Debug)]
pub struct PoolInput<'a> {
    /// The pool.
    pub owner: &'a Owner,
    /// What it wants.
    pub spec: &'a SGLangPoolSpec,
    /// The installation.
    pub rendering: &'a Rendering,
    /// What tokens are derived from.
    pub key: &'a OperatorKey,
    /// The Deployment of the engines as it is: its Pods stay as they are while the spec does.
    pub live_engines: Option<&'a Value>,
}

/// Everything that a pool has, in the order in which it is to be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolObjects {
    /// Identity of the Pods, without rights.
    pub account: Object,
    /// The engines; none: they are external.
    pub engines: Option<EngineObjects>,
    /// Who asks external engines with their key.
    pub survey: Option<SurveyObjects>,
    /// The pool's front door.
    pub router: Option<RouterObjects>,
    /// Paths of what a template wanted and did not get.
    pub overruled: Vec<String>,
}

/// What engines that the operator starts have.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineObjects {
    /// Who may connect to them; none: everybody.
    pub network_policy: Option<Object>,
    /// Settings of simulated engines.
    pub settings: Option<Object>,
    /// The list of engines in DNS.
    pub service: Object,
    /// How many may be evicted at once.
    pub budget: Object,
    /// The engines.
    pub deployment: Object,
    /// Hash of the spec that they run.
    pub revision: String,
}

/// What asks external engines with their key.
#[derive(Clone, Debug, PartialEq)]
pub struct SurveyObjects {
    /// Who may connect to it, and to whom it may; none: to and from everybody.
    pub network_policy: Option<Object>,
    /// It.
    pub deployment: Object,
}

/// What a pool's router has.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterObjects {
    /// Token of its control port.
    pub secret: Object,
    /// Its name in DNS.
    pub service: Object,
    /// The routers.
    pub deployment: Object,
}

impl PoolObjects {
    /// All of them, in the order in which they are to be applied: what a Pod needs comes before it.
    pub fn into_objects(self) -> Vec<Object> {
        let Self {
            account,
            engines,
            survey,
            router,
            overruled: _,
        } = self;
        let mut objects = vec![account];
        if let Some(engines) = engines {
            let EngineObjects {
                network_policy,
                settings,
                service,
                budget,
                deployment,
                revision: _,
            } = engines;
            objects.extend(network_policy);
            objects.extend(settings);
            objects.extend([service, budget, deployment]);
        }
        if let Some(survey) = survey {
            let SurveyObjects {
                network_policy,
                deployment,
            } = survey;
            objects.extend(network_policy);
            objects.push(deployment);
        }
        if let Some(router) = router {
            let RouterObjects {
                secret,
                service,
                deployment,
            } = router;
            objects.extend([secret, service, deployment]);
        }
        objects
    }
}

/// The objects of a pool.
///
/// # Errors
/// The spec cannot run on a cluster.
pub fn build(input: PoolInput<'_>) -> Result<PoolObjects, Refusal> {
    refuse_what_nobody_reads(input.spec)?;
    let mut overruled = Vec::new();
    let engines = match &input.spec.engine {
        Some(engine) => Some(build_engines(input, engine, &mut overruled)?),
        None => None,
    };
    let router = match &input.spec.router {
        Some(wanted) => Some(router::build(input, wanted, &mut overruled)?),
        None => None,
    };
    Ok(PoolObjects {
        account: account::build(input),
        engines,
        survey: survey::build(input),
        router,
        overruled,
    })
}

/// Fields that no part of the cluster acts on yet.
fn refuse_what_nobody_reads(spec: &SGLangPoolSpec) -> Result<(), Refusal> {
    let weights = spec.weights.as_ref();
    if weights.is_some_and(|weights| weights.required_version.is_some()) {
        return Err(Refusal::not_supported(
            "spec.weights.requiredVersion",
            "engines that are left out until they have a version",
        ));
    }
    let tokenizer = spec.tokenizer.as_ref();
    for (field, is_set) in [
        ("url", tokenizer.is_some_and(|files| files.url.is_some())),
        (
            "huggingFace",
            tokenizer.is_some_and(|files| files.hugging_face.is_some()),
        ),
    ] {
        if is_set {
            return Err(Refusal::not_supported(
                format!("spec.tokenizer.{field}"),
                "tokenizer files that are downloaded; use configMap or persistentVolumeClaim",
            ));
        }
    }
    Ok(())
}

fn build_engines(
    input: PoolInput<'_>,
    engine: &Engine,
    overruled: &mut Vec<String>,
) -> Result<EngineObjects, Refusal> {
    let revision = revision::of_engine(input.spec);
    let pod = engine_pod::build(input, engine, &revision)?;
    overruled.extend(pod.overruled.iter().cloned());
    let deployment = deployment::engines(input, engine, pod, &revision);
    Ok(EngineObjects {
        network_policy: network_policy::engines(input, engine),
        settings: simulator::settings(input, engine)?,
        service: services::engines(input),
        budget: budget::engines(input),
        deployment: match input.live_engines {
            Some(live) => keep_engines(deployment, live),
            None => deployment,
        },
        revision,
    })
}

impl PoolInput<'_> {
    fn labels(&self, component: Option<labels::Component>) -> serde_json::Map<String, Value> {
        labels::of_object(self.owner, component, self.rendering)
    }
}

/// Where engines are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineList {
    /// Base URLs.
    Urls(Vec<String>),
    /// `host:port`: every address of the name.
    Service(String),
}

impl EngineList {
    /// As the router and the survey take it on their command lines.
    fn arguments(self) -> Vec<String> {
        match self {
            Self::Urls(urls) => urls
                .into_iter()
                .map(|url| format!("--engine={url}"))
                .collect(),
            Self::Service(service) => vec![format!("--engine-service={service}")],
        }
    }
}

/// Where the engines of a pool are.
pub fn engine_list(
    pool: &str,
    namespace: &str,
    spec: &SGLangPoolSpec,
    rendering: &Rendering,
) -> EngineList {
    match &spec.external {
        Some(External {
            service: Some(service),
            ..
        }) => {
            let namespace = service.namespace.as_deref().unwrap_or(namespace);
            let host = rendering.service_host(&service.name, namespace);
            EngineList::Service(format!("{host}:{}", service.port))
        }
        Some(external) => EngineList::Urls(
            external
                .urls
                .iter()
                .map(|url| url.trim_end_matches('/').to_owned())
                .collect(),
        ),
        None => {
            let host = rendering.service_host(&super::names::engines(pool), namespace);
            EngineList::Service(format!("{host}:{ENGINE_PORT}"))
        }
    }
}
