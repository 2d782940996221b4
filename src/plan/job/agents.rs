//! Which agents' Pods are made, told about and deleted.
//!
//! A slot is a place for a Pod; its Pods follow each other by generation. The last Pod of a slot stays until its successor is there, so that
//! the next generation can be told from the cluster alone. Guarantee: a name is asked for again and again until the Pod was seen, and never
//! after that.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::course::elapsed;
use super::observed::{AgentLife, AgentPod, EndCause, Holder, Memory, PodEnd, Surplus};
use super::report::Demand;
use crate::api::job::{Agentic, RolloutJobSpec};

/// Sessions at once, where the job does not say.
const SESSIONS: i32 = 256;
/// Pods that are made in one look: the next look makes the rest.
const AT_ONCE: usize = 64;
/// A slot whose Pod failed rests so long.
const REST: Duration = Duration::from_secs(10);

/// After a refusal no Pods are asked for so long; it doubles.
const FIRST_PATIENCE: Duration = Duration::from_secs(1);
/// More Pods than are needed stay for so long: the next group may want them.
const KEPT: Duration = Duration::from_secs(20);
/// The longest wait after a refusal.
const LONGEST_PATIENCE: Duration = Duration::from_secs(30);

/// What is done about agents' Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentsPlan {
    /// Pods to make.
    pub create: Vec<Holder>,
    /// Pods to delete: name and UID.
    pub delete: Vec<(String, String)>,
    /// Whether those are all that there are, and none is to stay or come.
    pub all_go: bool,
    /// Ends that the driver is to be told of.
    pub tell: BTreeMap<Holder, PodEnd>,
    /// Whether Pods are missing that the API server refused a moment ago.
    pub is_refused: bool,
    /// Pods of which so many may go, if they are idle.
    pub retire: (Vec<Holder>, usize),
    /// There are more Pods than are needed; to be remembered until the next look.
    pub surplus: Option<Surplus>,
    /// When a slot that rests is due, or Pods are asked for again.
    pub again: Option<Duration>,
}

/// Deletes all.
pub(super) fn none(pods: &[AgentPod]) -> AgentsPlan {
    let mut plan = AgentsPlan {
        all_go: true,
        ..AgentsPlan::default()
    };
    for pod in pods {
        plan.delete(pod);
    }
    plan
}

/// Makes as many as the demand asks for.
pub(super) fn some(
    spec: &RolloutJobSpec,
    agentic: &Agentic,
    attempt: i32,
    demand: Option<Demand>,
    pods: &[AgentPod],
    memory: &Memory,
    now: Timestamp,
) -> AgentsPlan {
    let mut plan = AgentsPlan::default();
    // Their router is gone.
    let old = pods.iter().filter(|pod| pod.attempt != attempt);
    old.for_each(|pod| plan.delete(pod));
    let mut slots: BTreeMap<u32, Vec<&AgentPod>> = BTreeMap::new();
    for slot in memory.highest.keys() {
        slots.entry(*slot).or_default();
    }
    // Older attempts count: their names are taken.
    for pod in pods {
        slots.entry(pod.holder.0).or_default().push(pod);
    }
    let mut live: Vec<Holder> = Vec::new();
    let mut free: Vec<Holder> = Vec::new();
    for (slot, pods) in &slots {
        let here: Vec<_> = pods.iter().filter(|pod| pod.attempt == attempt).collect();
        for pod in here
            .iter()
            .filter(|pod| pod.is_alive() && pod.leaving.is_none())
        {
            if memory.retired.contains(&pod.holder) {
                plan.delete(pod);
            } else if pod.fault.is_none() {
                live.push(pod.holder);
            }
        }
        let of_pods = pods.iter().map(|pod| pod.holder.1).max().unwrap_or(0);
        let highest = of_pods.max(memory.highest.get(slot).copied().unwrap_or(0));
        if highest > of_pods && highest > 0 {
            // It was deleted by somebody, and its end seen by nobody.
            let end = PodEnd {
                cause: EndCause::Ended,
                reason: "the pod was deleted".to_owned(),
            };
            plan.tell(memory, (*slot, highest), end);
        }
        for pod in &here {
            let Some(end) = pod.end() else { continue };
            plan.tell(memory, pod.holder, end);
            // One that is at fault and still there has to go for its successor to come.
            let is_in_the_way = pod.is_alive() || pod.holder.1 < highest;
            if is_in_the_way && memory.told.contains(&pod.holder) {
                plan.delete(pod);
            }
        }
        if here.iter().any(|pod| pod.is_alive()) {
            continue;
        }
        match rest(&here, now) {
            Some(rest) => plan.sooner(rest),
            None => free.push((*slot, highest + 1)),
        }
    }
    let Some(demand) = demand.filter(|demand| !demand.closed) else {
        return plan;
    };
    let wanted = wanted(spec, agentic, demand);
    let missing = wanted.saturating_sub(live.len());
    plan.retire(live, wanted, memory, now);
    if let Some(patience) = patience(memory, now).filter(|_| missing > 0) {
        plan.is_refused = true;
        plan.sooner(patience);
        return plan;
    }
    let fresh = (0..).filter(|slot| !slots.contains_key(slot));
    let candidates = free.into_iter().chain(fresh.map(|slot| (slot, 1)));
    plan.create = candidates.take(missing.min(AT_ONCE)).collect();
    if missing > AT_ONCE {
        plan.again = Some(Duration::ZERO);
    }
    plan
}

impl AgentsPlan {
    fn sooner(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |again| again.min(wait)));
    }

    /// As many as were too many all the while; the latest slots go first.
    fn retire(&mut self, mut live: Vec<Holder>, wanted: usize, memory: &Memory, now: Timestamp) {
        let surplus = live.len().saturating_sub(wanted);
        if surplus == 0 {
            return;
        }
        let known = memory
            .surplus
            .map_or((now, surplus), |known| (known.since, known.fewest));
        let (since, fewest) = (known.0, known.1.min(surplus));
        let left = KEPT.saturating_sub(elapsed(since, now));
        if left.is_zero() {
            // What is too many after that has to be so for as long again.
            live.reverse();
            self.retire = (live, fewest);
            self.sooner(KEPT);
        } else {
            self.surplus = Some(Surplus { since, fewest });
            self.sooner(left);
        }
    }

    fn delete(&mut self, pod: &AgentPod) {
        if pod.leaving.is_none() {
            self.delete.push((pod.name.clone(), pod.uid.clone()));
        }
    }

    fn tell(&mut self, memory: &Memory, holder: Holder, end: PodEnd) {
        if !memory.told.contains(&holder) {
            self.tell.insert(holder, end);
        }
    }
}

/// How long a slot rests: one whose Pods fail at once must not make Pods without end.
fn rest(pods: &[&&AgentPod], now: Timestamp) -> Option<Duration> {
    let last = pods.iter().max_by_key(|pod| pod.holder.1)?;
    let AgentLife::Ended {
        failed: true,
        at: Some(at),
        ..
    } = &last.life
    else {
        return None;
    };
    let left = REST.saturating_sub(elapsed(*at, now));
    (!left.is_zero()).then_some(left)
}

/// How long no Pods are asked for, after those that were refused.
fn patience(memory: &Memory, now: Timestamp) -> Option<Duration> {
    let refusal = memory.refusal.as_ref()?;
    let doublings = refusal.times.saturating_sub(1).min(16);
    let whole = FIRST_PATIENCE.saturating_mul(1 << doublings);
    let left = whole
        .min(LONGEST_PATIENCE)
        .saturating_sub(elapsed(refusal.at, now));
    (!left.is_zero()).then_some(left)
}

fn wanted(spec: &RolloutJobSpec, agentic: &Agentic, demand: Demand) -> usize {
    let per_pod = u64::try_from(agentic.concurrent_sessions_per_pod)
        .unwrap_or(1)
        .max(1);
    let sessions = spec.rollout.concurrency.sessions.unwrap_or(SESSIONS);
    let most = u64::try_from(sessions)
        .unwrap_or(0)
        .div_ceil(per_pod)
        .max(1);
    let needed = demand.waiting.saturating_add(demand.assigned);
    let warm = u64::try_from(agentic.warm_pods).unwrap_or(0);
    let pods = needed.div_ceil(per_pod).min(most).max(warm);
    usize::try_from(pods).unwrap_or(usize::MAX)
}
