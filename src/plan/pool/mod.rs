//! What a pool's status says, from what its Deployments and Pods say, or from what its external engines answer.

mod claims;
pub mod external;
mod hub;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::conditions;
use crate::api::conditions::reasons;
use crate::api::pool::{EngineStatus, PoolDisplay, SGLangPoolSpec, SGLangPoolStatus};

use claims::Claims;
use external::{Judged, Survey};

pub use hub::Ended;

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
    /// Why the Pod does not start that asks external engines with their key.
    pub survey_trouble: Option<Trouble>,
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
    /// Base URL of its sidecar; none: it has no address yet.
    pub sidecar_url: Option<String>,
    /// Why it does not start.
    pub trouble: Option<Trouble>,
    /// What its engine said when it ended before it had started.
    pub ended: Option<Ended>,
    /// What its sidecar says; none: it was not asked yet, and what was known before holds.
    pub state: Option<EngineState>,
}

/// What the sidecar of an engine says about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineState {
    /// Version of its weights.
    pub weight_version: Option<String>,
    /// Version of SGLang.
    pub version: Option<String>,
    /// Whether its generation is paused.
    pub paused: bool,
    /// Why it may not begin to work, when a person must act.
    pub trouble: Option<String>,
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
    // A controller that has just started knows nothing yet: what was known before holds, and nothing is written.
    if matches!(verdict, Verdict::Applied(_))
        && survey.as_ref().is_some_and(Judged::says_nothing)
        && before.observed_generation == generation
    {
        return SGLangPoolStatus {
            bound_jobs: observed.bound_jobs,
            ..before.clone()
        };
    }
    let pods = remembered(&observed.pods, &before.engines);
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
        now,
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
            None => listed(&pods),
        },
        current_revision: current_revision(&observed.pods, built.revision.as_deref()),
        update_revision: built.revision,
        bound_jobs: observed.bound_jobs,
        display: Some(PoolDisplay {
            engines: Some(format!("{}/{wanted}", engines.ready)),
            weights: match &survey {
                Some(survey) => survey.weights(),
                None => weights(&pods),
            },
        }),
    }
}

/// Pods whose sidecars were not asked yet, as they were known before.
fn remembered(pods: &[EnginePod], before: &[EngineStatus]) -> Vec<EnginePod> {
    let remember = |pod: &EnginePod| {
        let known = before
            .iter()
            .find(|engine| engine.name == pod.name && Some(&engine.url) == pod.url.as_ref());
        let known = known.map(|engine| EngineState {
            weight_version: engine.weight_version.clone(),
            version: engine.version.clone(),
            paused: engine.paused,
            trouble: None,
        });
        EnginePod {
            state: pod.state.clone().or(known),
            ..pod.clone()
        }
    };
    pods.iter().map(remember).collect()
}

/// Sorted, so that an unordered cache makes no difference.
fn listable(pods: &[EnginePod]) -> Vec<&EnginePod> {
    let mut engines: Vec<_> = pods.iter().filter(|pod| pod.url.is_some()).collect();
    engines.sort_by(|left, right| left.name.cmp(&right.name));
    engines.truncate(MOST_ENGINES);
    engines
}

fn listed(pods: &[EnginePod]) -> Vec<EngineStatus> {
    let engines = listable(pods).into_iter();
    engines
        .map(|pod| {
            let state = pod.state.clone().unwrap_or_default();
            EngineStatus {
                name: pod.name.clone(),
                url: pod.url.clone().unwrap_or_default(),
                ready: pod.ready,
                weight_version: state.weight_version,
                version: state.version,
                paused: state.paused,
            }
        })
        .collect()
}

/// The sidecars to ask, by the names of their Pods: those of engines that a status lists, also of such that do not take work yet.
pub fn asked(pods: &[EnginePod]) -> BTreeMap<String, String> {
    let engines = listable(pods).into_iter();
    engines
        .filter_map(|pod| Some((pod.name.clone(), pod.sidecar_url.clone()?)))
        .collect()
}

/// The version of all weights that are known.
fn weights(pods: &[EnginePod]) -> Option<String> {
    let states = pods.iter().filter_map(|pod| pod.state.as_ref());
    one_of(states.filter_map(|state| state.weight_version.as_ref()))
}

/// When to look again although nothing changes: the words of an engine that tries again count for a while.
pub fn look_again(pods: &[EnginePod], now: Timestamp) -> Option<Duration> {
    let ended = pods.iter().filter_map(|pod| pod.ended.as_ref());
    let waits = ended.filter_map(|ended| ended.counts_for(now));
    waits.filter(|wait| !wait.is_zero()).min()
}

/// What all of them are; `Mixed` when they differ.
fn one_of<'a>(mut versions: impl Iterator<Item = &'a String>) -> Option<String> {
    let first = versions.next()?;
    let same = versions.all(|version| version == first);
    Some(if same {
        first.clone()
    } else {
        "Mixed".to_owned()
    })
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
