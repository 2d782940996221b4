//! How the slots of a job were filled over time, from a watch of its agents' Pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::watcher::{self, Event, watcher};
use parking_lot::Mutex;
use rollout_operator::api::meta::labels;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::selector;
use crate::runtime::jobs::place::Place;

/// A Pod, as an event of the watch told it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    at: Instant,
    name: String,
    slot: String,
    life: Life,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Starting,
    Running,
    Ended,
}

/// A watch that goes on until it is dropped.
pub(super) struct Watched {
    seen: Arc<Mutex<Vec<Seen>>>,
    _task: JoinSet<()>,
}

impl Watched {
    pub(super) fn new(place: &Place, job: &str) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let config = watcher::Config::default().labels(&selector(job));
        let mut events = Box::pin(watcher(place.all::<Pod>(), config));
        let book = Arc::clone(&seen);
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(event) = events.next().await {
                let (pod, gone) = match event {
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => (pod, false),
                    Ok(Event::Delete(pod)) => (pod, true),
                    Ok(Event::Init | Event::InitDone) | Err(_) => continue,
                };
                book.lock().push(Seen::of(&pod, gone));
            }
        });
        Self { seen, _task: task }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }
}

impl Seen {
    fn of(pod: &Pod, gone: bool) -> Self {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let leaving = gone || pod.metadata.deletion_timestamp.is_some();
        Self {
            at: Instant::now(),
            name: pod.name_any(),
            slot: pod.labels().get(labels::SLOT).cloned().unwrap_or_default(),
            life: match phase {
                _ if leaving => Life::Ended,
                Some("Succeeded" | "Failed") => Life::Ended,
                Some("Running") => Life::Running,
                _ => Life::Starting,
            },
        }
    }
}

/// What became of the slots while work waited: from when all were filled first until the last Pod was made.
pub(super) struct Slots {
    /// The most slots that had a live Pod at once.
    pub(super) most: usize,
    /// The fewest, and the mean over time; of running Pods the mean.
    fewest: usize,
    mean: f64,
    running: f64,
    /// How many Pods of other slots were made and ended while the slot that fared worst had none.
    pub(super) overtaken: usize,
    /// From a Pod's end to its successor.
    waits: Vec<Duration>,
}

/// A Pod's life in the order of events.
#[derive(Clone)]
struct Course {
    slot: String,
    made: usize,
    ended: Option<usize>,
}

impl Slots {
    /// `pods` is how many are made while work waits.
    pub(super) fn of(seen: &[Seen], pods: usize) -> Self {
        let mut courses: BTreeMap<&str, Course> = BTreeMap::new();
        let mut order = Vec::new();
        for (index, event) in seen.iter().enumerate() {
            let course = courses.entry(&event.name).or_insert_with(|| {
                order.push(index);
                Course {
                    slot: event.slot.clone(),
                    made: index,
                    ended: None,
                }
            });
            if event.life == Life::Ended {
                course.ended.get_or_insert(index);
            }
        }
        let last = order.get(pods - 1).copied().unwrap_or(seen.len());
        let mut slots = Self {
            most: 0,
            fewest: usize::MAX,
            mean: 0.0,
            running: 0.0,
            overtaken: 0,
            waits: Vec::new(),
        };
        slots.count(&seen[..last]);
        let courses: Vec<_> = courses.into_values().collect();
        for end in courses
            .iter()
            .filter_map(|course| Some((course, course.ended?)))
        {
            let (before, ended) = end;
            let next = courses
                .iter()
                .filter(|course| course.slot == before.slot && course.made > before.made)
                .min_by_key(|course| course.made);
            let Some(next) = next.filter(|next| next.made > ended) else {
                continue;
            };
            let passed = courses.iter().filter(|course| {
                course.slot != before.slot
                    && course.made > ended
                    && course.ended.is_some_and(|end| end < next.made)
            });
            slots.overtaken = slots.overtaken.max(passed.count());
            slots.waits.push(seen[next.made].at - seen[ended].at);
        }
        slots.waits.sort_unstable();
        slots
    }

    /// Live Pods over time, from when there were most.
    fn count(&mut self, seen: &[Seen]) {
        let mut lives: BTreeMap<&str, Life> = BTreeMap::new();
        let mut counts = Vec::new();
        for event in seen {
            // What has ended does not live again.
            let life = lives.entry(&event.name).or_insert(event.life);
            if *life != Life::Ended {
                *life = event.life;
            }
            let filled = lives.values().filter(|life| **life != Life::Ended).count();
            let running = lives
                .values()
                .filter(|life| **life == Life::Running)
                .count();
            counts.push((event.at, filled, running));
        }
        self.most = counts.iter().map(|(_, live, _)| *live).max().unwrap_or(0);
        let full = counts.iter().position(|(_, live, _)| *live == self.most);
        let counts = &counts[full.unwrap_or(0)..];
        let (mut whole, mut live_seconds, mut running_seconds) = (0.0, 0.0, 0.0);
        for pair in counts.windows(2) {
            let [(at, live, running), (until, ..)] = pair else {
                continue;
            };
            let seconds = (*until - *at).as_secs_f64();
            whole += seconds;
            live_seconds += seconds * f64::from(u32::try_from(*live).unwrap());
            running_seconds += seconds * f64::from(u32::try_from(*running).unwrap());
            self.fewest = self.fewest.min(*live);
        }
        self.mean = live_seconds / whole;
        self.running = running_seconds / whole;
    }

    pub(super) fn summary(&self) -> String {
        let wait = |part: usize| {
            self.waits
                .get(self.waits.len() * part / 100)
                .map_or(0, Duration::as_millis)
        };
        format!(
            "live slots {} at the most, {} at the least, {:.2} in the mean ({:.2} running); a slot was empty for {} ms (median), {} ms (99 %), \
             and passed by {} pods at the most",
            self.most,
            self.fewest,
            self.mean,
            self.running,
            wait(50),
            wait(99),
            self.overtaken
        )
    }
}
