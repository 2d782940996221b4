//! A pool's conditions.

use k8s_openapi::jiff::Timestamp;

use super::external::Judged;
use super::{EnginePod, Observed, Trouble, Verdict, Workload, hub, refusal_of_pods};
use crate::api::conditions::{reasons, types};
use crate::api::pool::SGLangPoolSpec;
use crate::plan::conditions::{Claim, Holds};

/// What conditions are made from.
pub(super) struct Claims<'a> {
    pub(super) spec: &'a SGLangPoolSpec,
    pub(super) wanted: i32,
    pub(super) engines: &'a Workload,
    pub(super) survey: Option<&'a Judged>,
    pub(super) observed: &'a Observed,
    pub(super) verdict: &'a Verdict,
    pub(super) now: Timestamp,
}

impl Claims<'_> {
    pub(super) fn all(&self) -> Vec<Claim> {
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
        if self.spec.engine.is_some() || self.survey.is_some() {
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
        if let Some(survey) = self.survey {
            let unsuitable = survey.unsuitable();
            return unsuitable.or_else(|| self.observed.survey_trouble.clone());
        }
        if self.engines_settled() {
            return None;
        }
        let mut troubles: Vec<_> = self
            .observed
            .pods
            .iter()
            .filter_map(|pod| Some((&pod.name, self.trouble(pod)?)))
            .collect();
        troubles.sort_by_key(|(name, _)| *name);
        if let Some((_, trouble)) = troubles.into_iter().next() {
            return Some(trouble);
        }
        let message = self.engines.failure.clone()?;
        Some(Trouble {
            reason: refusal_of_pods(&message),
            message,
        })
    }

    fn trouble(&self, pod: &EnginePod) -> Option<Trouble> {
        let of_hub = || hub::trouble(self.spec, pod.ended.as_ref()?, self.now);
        let of_engine = || {
            let trouble = pod.state.as_ref()?.trouble.as_ref()?;
            Some(Trouble {
                reason: reasons::MODEL_UNAVAILABLE,
                message: format!("{}: {trouble}", pod.name),
            })
        };
        pod.trouble.clone().or_else(of_hub).or_else(of_engine)
    }

    fn engines_settled(&self) -> bool {
        let engines = self.engines;
        // A list of external engines that is empty is one that is not known yet.
        let is_there = match self.survey {
            Some(_) => self.wanted > 0,
            None => self.observed.engines.is_some(),
        };
        is_there
            && engines.is_current
            && engines.replicas == self.wanted
            && engines.ready == self.wanted
            && engines.updated == self.wanted
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
        let router = self.observed.router.as_ref();
        let no_router = router.is_none_or(|router| router.replicas == 0);
        let (gone, over, going) = match self.survey {
            // They are not ours to stop.
            Some(_) => (
                no_router,
                "no job starts; the engines run on",
                "the router is stopping",
            ),
            None => (
                self.engines.replicas == 0 && self.observed.pods.is_empty(),
                "no engine runs",
                "engines are stopping",
            ),
        };
        match (self.spec.suspend, gone) {
            (false, _) => Claim::new(types::SUSPENDED, false, reasons::AS_EXPECTED, ""),
            (true, true) => Claim::new(types::SUSPENDED, true, reasons::SUSPENDED, over),
            (true, false) => Claim::new(types::SUSPENDED, false, reasons::PROGRESSING, going),
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
        let count = format!(
            "{} of {} engines are ready",
            self.engines.ready, self.wanted
        );
        match self.survey.and_then(Judged::remarks) {
            Some(remarks) => format!("{count}; {remarks}"),
            None => count,
        }
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
