//! What a pool's status says, from what its Deployments and Pods say.

use k8s_openapi::jiff::Timestamp;

use super::conditions::{self, Claim, Holds};
use crate::api::conditions::{reasons, types};
use crate::api::pool::{EngineStatus, PoolDisplay, SGLangPoolSpec, SGLangPoolStatus};

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
    let engines = observed.engines.clone().unwrap_or_default();
    let wanted = if spec.suspend { 0 } else { spec.replicas };
    let claims = Claims {
        spec,
        wanted,
        engines: &engines,
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
        engines: listed(&observed.pods),
        current_revision: current_revision(&observed.pods, built.revision.as_deref()),
        update_revision: built.revision,
        bound_jobs: observed.bound_jobs,
        display: Some(PoolDisplay {
            engines: Some(format!("{}/{wanted}", engines.ready)),
            weights: None,
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

struct Claims<'a> {
    spec: &'a SGLangPoolSpec,
    wanted: i32,
    engines: &'a Workload,
    observed: &'a Observed,
    verdict: &'a Verdict,
}

impl Claims<'_> {
    fn all(&self) -> Vec<Claim> {
        let stalled = self.stalled();
        let suspended = self.spec.suspend;
        let settled = self.engines_settled() && self.router_settled();
        let ready = match &stalled {
            Some(trouble) => {
                Claim::new(types::READY, false, trouble.reason, trouble.message.clone())
            }
            None if suspended => Claim::new(
                types::READY,
                false,
                reasons::SUSPENDED,
                "the pool is suspended",
            ),
            None if settled => Claim::new(types::READY, true, reasons::AS_EXPECTED, self.count()),
            None => Claim::new(types::READY, false, reasons::STARTING, self.count()),
        };
        let reconciling = match stalled {
            None if !settled => {
                Claim::new(types::RECONCILING, true, reasons::PROGRESSING, self.count())
            }
            _ => Claim::new(types::RECONCILING, false, reasons::AS_EXPECTED, ""),
        };
        let stalled = match stalled {
            Some(trouble) => Claim::new(types::STALLED, true, trouble.reason, trouble.message),
            None => Claim::new(
                types::STALLED,
                false,
                reasons::AS_EXPECTED,
                self.overruled(),
            ),
        };
        let mut claims = vec![ready, reconciling, stalled, self.suspended()];
        if self.spec.engine.is_some() {
            claims.push(self.available());
            claims.push(self.engines_ready());
        }
        if self.spec.router.is_some() {
            claims.push(self.router_ready());
        }
        claims
    }

    /// Why a person must act. While engines can still come up, one Pod's trouble is not the pool's.
    fn stalled(&self) -> Option<Trouble> {
        if let Verdict::Refused(trouble) = self.verdict {
            return Some(trouble.clone());
        }
        if self.engines_settled() {
            return None;
        }
        let mut troubles: Vec<_> = self
            .observed
            .pods
            .iter()
            .filter_map(|pod| Some((&pod.name, pod.trouble.as_ref()?)))
            .collect();
        troubles.sort_by_key(|(name, _)| *name);
        if let Some((_, trouble)) = troubles.first() {
            return Some((*trouble).clone());
        }
        let message = self.engines.failure.clone()?;
        Some(Trouble {
            reason: refusal_of_pods(&message),
            message,
        })
    }

    fn engines_settled(&self) -> bool {
        let engines = self.engines;
        self.spec.engine.is_none()
            || (self.observed.engines.is_some()
                && engines.is_current
                && engines.replicas == self.wanted
                && engines.ready == self.wanted
                && engines.updated == self.wanted)
    }

    fn router_settled(&self) -> bool {
        let Some(router) = &self.spec.router else {
            return true;
        };
        let wanted = if self.spec.suspend {
            0
        } else {
            router.replicas
        };
        let there = self.observed.router.as_ref();
        there.is_some_and(|there| {
            there.is_current && there.ready == wanted && there.updated == wanted
        })
    }

    fn suspended(&self) -> Claim {
        let gone = self.engines.replicas == 0 && self.observed.pods.is_empty();
        match (self.spec.suspend, gone) {
            (false, _) => Claim::new(types::SUSPENDED, false, reasons::AS_EXPECTED, ""),
            (true, true) => {
                Claim::new(types::SUSPENDED, true, reasons::SUSPENDED, "no engine runs")
            }
            (true, false) => Claim::new(
                types::SUSPENDED,
                false,
                reasons::PROGRESSING,
                "engines are stopping",
            ),
        }
    }

    fn available(&self) -> Claim {
        if self.engines.ready > 0 {
            return Claim::new(types::AVAILABLE, true, reasons::AS_EXPECTED, self.count());
        }
        Claim::new(
            types::AVAILABLE,
            false,
            self.absence(),
            "no engine takes work",
        )
    }

    fn engines_ready(&self) -> Claim {
        if self.engines_settled() && self.wanted > 0 {
            return Claim::new(
                types::ENGINES_READY,
                true,
                reasons::AS_EXPECTED,
                self.count(),
            );
        }
        Claim::new(types::ENGINES_READY, false, self.absence(), self.count())
    }

    fn router_ready(&self) -> Claim {
        let ready = self
            .observed
            .router
            .as_ref()
            .map_or(0, |router| router.ready);
        let holds = Holds::from(ready > 0);
        let reason = if ready > 0 {
            reasons::AS_EXPECTED
        } else {
            self.absence()
        };
        Claim::new(
            types::ROUTER_READY,
            holds,
            reason,
            format!("{ready} routers answer"),
        )
    }

    fn absence(&self) -> &'static str {
        if self.spec.suspend {
            reasons::SUSPENDED
        } else {
            reasons::STARTING
        }
    }

    fn count(&self) -> String {
        format!(
            "{} of {} engines are ready",
            self.engines.ready, self.wanted
        )
    }

    fn overruled(&self) -> String {
        let Verdict::Applied(built) = self.verdict else {
            return String::new();
        };
        if built.overruled.is_empty() {
            return String::new();
        }
        format!(
            "the operator's own values stand, not the template's: {}",
            built.overruled.join(", ")
        )
    }
}

/// Why Kubernetes makes no Pods, from its words.
pub fn refusal_of_pods(message: &str) -> &'static str {
    if message.contains("exceeded quota") || message.contains("failed quota") {
        reasons::QUOTA_EXCEEDED
    } else {
        reasons::APPLY_REFUSED
    }
}
