//! What a pool's status says, from what its Deployments and Pods say, or from what its external engines answer.

mod claims;
pub mod external;

use k8s_openapi::jiff::Timestamp;

use super::conditions;
use crate::api::conditions::reasons;
use crate::api::pool::{EngineStatus, PoolDisplay, SGLangPoolSpec, SGLangPoolStatus};

use claims::Claims;
use external::Survey;

/// Engines that a status lists.
const MOST_ENGINES: usize = 64;

/// What there is of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The engines' Deployment; none: there is none yet.
    pub engines: Option<Workload>,
    /// The router's Deployment; none: there is none.
    pub router: Option<Workload>,
    /// The engines' Pods.
    pub pods: Vec<EnginePod>,
    /// What external engines answered; none: they were not asked yet, or the pool has none.
    pub external: Option<Survey>,
    /// Jobs that use the pool and have not ended.
    pub bound_jobs: i32,
}

/// What a Deployment says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Whether what it says is about its current spec.
    pub is_current: bool,
    /// Pods that exist.
    pub replicas: i32,
    /// Pods that are ready.
    pub ready: i32,
    /// Pods of the current template.
    pub updated: i32,
    /// Why it cannot make Pods, in the API server's words.
    pub failure: Option<String>,
}

/// A Pod of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnginePod {
    /// Its name.
    pub name: String,
    /// Base URL; none: it has no address yet.
    pub url: Option<String>,
    /// Whether it takes work.
    pub ready: bool,
    /// Revision that it runs.
    pub revision: Option<String>,
    /// Why it does not start.
    pub trouble: Option<Trouble>,
}

/// Why a Pod does not start, when a person must act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Reason of the condition `Stalled`.
    pub reason: &'static str,
    /// In the words of Kubernetes.
    pub message: String,
}

/// What became of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It cannot work, or an object of it cannot be applied: a person must act.
    Refused(Trouble),
    /// Its objects are there.
    Applied(Built),
}

/// What the built objects say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// Revision of the engines.
    pub revision: Option<String>,
    /// Label selector of the engines.
    pub selector: Option<String>,
    /// URL of the router.
    pub endpoint: Option<String>,
    /// What a template wanted and did not get.
    pub overruled: Vec<String>,
}

/// The status of a pool.
pub fn status(
    spec: &SGLangPoolSpec,
    before: &SGLangPoolStatus,
    generation: i64,
    verdict: &Verdict,
    observed: &Observed,
    now: Timestamp,
) -> SGLangPoolStatus {
    let survey = spec.external.as_ref().map(|_| {
        let survey = observed.external.clone().unwrap_or_default();
        survey.of(spec)
    });
    let engines = match &survey {
        Some(survey) => survey.workload(),
        None => observed.engines.clone().unwrap_or_default(),
    };
    let wanted = match &survey {
        Some(_) => engines.replicas,
        None if spec.suspend => 0,
        None => spec.replicas,
    };
    let claims = Claims {
        spec,
        wanted,
        engines: &engines,
        survey: survey.as_ref(),
        observed,
        verdict,
    };
    let built = match verdict {
        Verdict::Applied(built) => built.clone(),
        // What was applied before is still there.
        Verdict::Refused(_) => Built {
            revision: before.update_revision.clone(),
            selector: before.selector.clone(),
            endpoint: before.endpoint.clone(),
            overruled: Vec::new(),
        },
    };
    SGLangPoolStatus {
        observed_generation: generation,
        conditions: conditions::merge(&before.conditions, claims.all(), generation, now),
        replicas: engines.replicas,
        ready_replicas: engines.ready,
        updated_replicas: engines.updated,
        selector: built.selector,
        endpoint: built.endpoint,
        engines: match &survey {
            Some(survey) => survey.listed(),
            None => listed(&observed.pods),
        },
        current_revision: current_revision(&observed.pods, built.revision.as_deref()),
        update_revision: built.revision,
        bound_jobs: observed.bound_jobs,
        display: Some(PoolDisplay {
            engines: Some(format!("{}/{wanted}", engines.ready)),
            weights: survey.as_ref().and_then(external::Judged::weights),
        }),
    }
}

/// Sorted, so that an unordered cache makes no difference.
fn listed(pods: &[EnginePod]) -> Vec<EngineStatus> {
    let mut engines: Vec<_> = pods
        .iter()
        .filter_map(|pod| {
            Some(EngineStatus {
                name: pod.name.clone(),
                url: pod.url.clone()?,
                ready: pod.ready,
                weight_version: None,
                version: None,
                paused: false,
            })
        })
        .collect();
    engines.sort_by(|left, right| left.name.cmp(&right.name));
    engines.truncate(MOST_ENGINES);
    engines
}

/// Another than the wanted one while any Pod runs it.
fn current_revision(pods: &[EnginePod], wanted: Option<&str>) -> Option<String> {
    let mut revisions: Vec<_> = pods
        .iter()
        .filter_map(|pod| pod.revision.as_deref())
        .collect();
    revisions.sort_unstable();
    let old = revisions.iter().find(|revision| Some(**revision) != wanted);
    old.or(revisions.first())
        .map(|revision| (*revision).to_owned())
}

/// Why Kubernetes makes no Pods, from its words.
pub fn refusal_of_pods(message: &str) -> &'static str {
    if message.contains("exceeded quota") || message.contains("failed quota") {
        reasons::QUOTA_EXCEEDED
    } else {
        reasons::APPLY_REFUSED
    }
}
