//! What there is of a pool: from caches, and from who is asked beside them (external engines, and the sidecars of the pool's own).
//!
//! Nothing here waits: asking is done by tasks, which put the pool into the queue when something is new.

use std::sync::Arc;

use super::external::Wanted;
use super::observe;
use super::reconciler::PoolReconciler;
use super::status::Target;
use crate::api::pool::SGLangPool;
use crate::plan::pool::external::{ExternalEngine, Survey};
use crate::plan::pool::{self as plan, EngineState, Observed, Verdict};
use crate::resources::pool::EngineList;
use crate::resources::{names, pool as resources};

impl PoolReconciler {
    pub(super) fn observe(&self, target: &Target) -> Observed {
        let context = self.context();
        let (namespace, name) = (&target.namespace, &target.name);
        let workload = |deployment: String| {
            let found = self.deployment(target, &deployment)?;
            let owners = found["metadata"]["ownerReferences"].as_array()?;
            let ours = owners
                .iter()
                .any(|owner| owner["uid"] == target.uid.as_str());
            ours.then(|| observe::workload(&found))
        };
        let pods = (context.pods)(namespace, name);
        let mut pods: Vec<_> = pods
            .iter()
            .filter_map(|pod| observe::engine_pod(pod))
            .collect();
        pods.sort_by(|left, right| left.name.cmp(&right.name));
        let (is_there, changed) = self.callbacks(target);
        let asked = plan::asked(&pods);
        let states = context.states.of(&target.uid, asked, is_there, changed);
        for pod in &mut pods {
            let state = states.get(&pod.name).cloned();
            // Of one that does not take work counts only why.
            let in_trouble = |state: &EngineState| state.trouble.is_some();
            pod.state = state.filter(|state| pod.ready || in_trouble(state));
        }
        let survey = workload(names::survey(name));
        let survey_pods = (context.survey_pods)(namespace, name);
        Observed {
            engines: workload(names::engine(name)),
            router: workload(names::router(name)),
            pods,
            external: None,
            survey_trouble: observe::survey_trouble(survey.as_ref(), &survey_pods),
            bound_jobs: (context.bound_jobs)(namespace, name),
        }
    }

    /// Whether the pool is still there, and what is called when something that was asked is new.
    fn callbacks(
        &self,
        target: &Target,
    ) -> (
        impl Fn() -> bool + Send + 'static,
        impl Fn() + Send + Sync + 'static,
    ) {
        let (there, queue) = (
            Arc::clone(&self.context().there),
            Arc::clone(&self.context().queue),
        );
        let (place, uid) = (target.clone(), target.uid.clone());
        let is_there =
            move || there(&place.namespace, &place.name).as_deref() == Some(uid.as_str());
        let place = target.clone();
        (is_there, move || queue(&place.namespace, &place.name))
    }

    /// What is known of external engines, which are asked from now on.
    pub(super) fn survey(
        &self,
        pool: &SGLangPool,
        target: &Target,
        verdict: &Verdict,
        ca: Option<String>,
    ) -> Option<Survey> {
        let context = self.context();
        let (Some(external), Verdict::Applied(_)) = (&pool.spec.external, verdict) else {
            context.surveys.forget(&target.uid);
            return None;
        };
        let (namespace, name) = (&target.namespace, &target.name);
        let engines = resources::engine_list(name, namespace, &pool.spec, &context.rendering);
        let wanted = if external.api_key_secret_ref.is_none() {
            Wanted::Here { engines, ca }
        } else {
            let pods = (context.survey_pods)(namespace, name);
            match observe::survey_address(&pods) {
                Some(address) => Wanted::ByPod { address },
                None => return Some(self.unsurveyed(target, &engines)),
            }
        };
        let (is_there, changed) = self.callbacks(target);
        let survey = context.surveys.of(&target.uid, wanted, is_there, changed);
        Some(survey)
    }

    /// What is known while no Pod asks.
    fn unsurveyed(&self, target: &Target, engines: &EngineList) -> Survey {
        let known = self.context().surveys.last(&target.uid);
        Survey {
            trouble: Some("the Pod that asks the engines with their key is starting".to_owned()),
            ..known.unwrap_or_else(|| unasked(engines))
        }
    }
}

/// What is known of engines that nobody has asked.
fn unasked(engines: &EngineList) -> Survey {
    let urls = match engines {
        EngineList::Urls(urls) => urls.as_slice(),
        EngineList::Service(_) => &[],
    };
    Survey {
        engines: urls
            .iter()
            .map(|url| ExternalEngine::unasked(url))
            .collect(),
        ..Survey::default()
    }
}
