//! Agent pods as child processes: what the controller does on a cluster.
//!
//! A pod is two processes, as in a real agent pod: the launcher, which holds the pod's claim token, and the shim, which runs the
//! user's code. Pods are numbered by slot and generation; as many run as the router's demand asks for.

use std::time::Duration;

use serde::Deserialize;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    control::{Control, Demand},
    pod::{Pod, Pods},
    waiting::{self, Slots},
    workdir::shown,
};

/// How often the demand is read.
const POLL: Duration = Duration::from_millis(200);

/// A pod that ends sooner than this without having worked is started again only after a pause.
const TOO_SHORT: Duration = Duration::from_secs(2);

/// Where the router listens.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RouterUrls {
    pub(super) agents_url: String,
    pub(super) control_url: String,
}

/// Starts and ends pods until `cancel`. Says in `notice` when sessions wait in vain.
pub(super) async fn run(
    pods: Pods,
    router: RouterUrls,
    control: Control,
    notice: watch::Sender<Option<String>>,
    cancel: CancellationToken,
) {
    let mut running = JoinSet::new();
    let mut slots: Vec<Slot> = (0..pods.slots).map(Slot::new).collect();
    let mut stuck_since = None;
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => break,
            Some(ended) = running.join_next(), if !running.is_empty() => {
                if let Ok((number, worked)) = ended
                    && let Some(slot) = slots.iter_mut().find(|slot| slot.number == number)
                {
                    slot.ended(worked);
                }
            }
            _ = ticks.tick() => {
                let Some(demand) = control.demand().await else { continue };
                let now = Instant::now();
                stuck_since = waiting::is_stuck(&demand).then(|| stuck_since.unwrap_or(now));
                let stuck_for = stuck_since.map(|since| now - since);
                notice.send_replace(stuck_for.and_then(|stuck_for| say(&pods, &demand, stuck_for, &slots, now)));
                let busy = u32::try_from(slots.iter().filter(|slot| slot.is_busy()).count()).unwrap_or(u32::MAX);
                let missing = pods_wanted(&demand, pods.concurrent).min(pods.slots).saturating_sub(busy);
                for slot in slots.iter_mut().filter(|slot| !slot.is_busy()).take(missing as usize) {
                    let pause = slot.begin(now);
                    running.spawn(run_pod(pods.clone(), router.agents_url.clone(), control.clone(), (slot.number, slot.generation), pause, cancel.clone()));
                }
            }
        }
    }
    while running.join_next().await.is_some() {}
}

struct Slot {
    number: u32,
    generation: u32,
    /// When its pod was started, while there is one.
    since: Option<Instant>,
    failures: u32,
}

impl Slot {
    fn new(number: u32) -> Self {
        Self {
            number,
            generation: 0,
            since: None,
            failures: 0,
        }
    }

    fn is_busy(&self) -> bool {
        self.since.is_some()
    }

    /// The next pod; answers how long it waits before it starts.
    fn begin(&mut self, now: Instant) -> Duration {
        self.since = Some(now);
        self.generation += 1;
        if self.failures == 0 {
            Duration::ZERO
        } else {
            Duration::from_millis(250 << self.failures.min(5))
        }
    }

    fn ended(&mut self, worked: bool) {
        self.since = None;
        self.failures = if worked { 0 } else { self.failures + 1 };
    }
}

/// Pods that the demand asks for.
fn pods_wanted(demand: &Demand, concurrent: u32) -> u32 {
    (demand.waiting + demand.assigned).div_ceil(concurrent.max(1))
}

fn say(
    pods: &Pods,
    demand: &Demand,
    stuck_for: Duration,
    slots: &[Slot],
    now: Instant,
) -> Option<String> {
    let running = slots
        .iter()
        .filter_map(|slot| Some((slot.since?, slot.number)));
    let view = Slots {
        oldest: running
            .min_by_key(|(since, _)| *since)
            .map(|(since, number)| (now - since, number)),
        short_lived: slots.iter().map(|slot| slot.failures).max().unwrap_or(0),
    };
    let log = pods.log(view.oldest.map_or(0, |(_, slot)| slot));
    waiting::notice(
        demand,
        stuck_for,
        view,
        pods.loads.as_deref(),
        &shown(&log).to_string(),
    )
}

/// Runs one pod to its end. Answers its slot and whether it ran long enough to count as having worked.
async fn run_pod(
    pods: Pods,
    router: String,
    control: Control,
    (slot, generation): (u32, u32),
    pause: Duration,
    cancel: CancellationToken,
) -> (u32, bool) {
    tokio::select! {
        () = cancel.cancelled() => return (slot, true),
        () = sleep(pause) => {}
    }
    let started = Instant::now();
    let pod = Pod {
        pods: &pods,
        router: &router,
        control: &control,
        slot,
        generation,
        cancel: &cancel,
    };
    if let Err(error) = pod.run().await {
        let error = format!("{error:#}");
        tracing::warn!(slot, generation, error, "an agent pod failed");
    }
    (slot, started.elapsed() > TOO_SHORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pods_as_sessions_need() {
        let demand = |waiting, assigned| Demand {
            waiting,
            assigned,
            idle_claims: 0,
        };
        assert_eq!(pods_wanted(&demand(3, 6), 1), 9);
        assert_eq!(pods_wanted(&demand(3, 6), 4), 3);
        assert_eq!(pods_wanted(&demand(0, 0), 4), 0);
    }
}
