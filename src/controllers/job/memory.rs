//! What is remembered of jobs between two looks; all of it can be found out again.

use std::collections::HashMap;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

use super::make::Agents;
use crate::plan::job::{AgentPod, AgentsPlan, AgentsRefusal, Memory};
use crate::plan::pool::Trouble;

/// By UID of the job.
#[derive(Default)]
pub(super) struct Memories {
    jobs: Mutex<HashMap<String, Remembered>>,
}

#[derive(Default)]
struct Remembered {
    attempt: i32,
    /// The attempt that this process began, until it asks for its driver.
    begun: Option<i32>,
    /// The job's version from which on it is held.
    held: Option<u64>,
    /// UID of the driver that is asked.
    driver: Option<String>,
    agents: Memory,
    hindrance: Option<Trouble>,
}

impl Memories {
    /// A job is gone. Answers the driver that was asked for it.
    pub(super) fn forget(&self, uid: &str) -> Option<String> {
        self.jobs.lock().remove(uid)?.driver
    }

    /// Remembers which generations of the current attempt were seen; answers what is known of its agents.
    pub(super) fn see(&self, uid: &str, attempt: i32, agents: &[AgentPod]) -> Memory {
        self.with(uid, |known| {
            if known.attempt != attempt {
                known.attempt = attempt;
                known.agents = Memory::default();
            }
            for pod in agents.iter().filter(|pod| pod.attempt == attempt) {
                let (slot, generation) = pod.holder;
                let highest = known.agents.highest.entry(slot).or_default();
                *highest = generation.max(*highest);
            }
            known.agents.clone()
        })
    }

    /// This process wrote the number of an attempt: nobody has asked for its driver.
    pub(super) fn begins(&self, uid: &str, attempt: i32) {
        self.with(uid, |known| known.begun = Some(attempt));
    }

    /// The driver may be there from now on.
    pub(super) fn asked_for_driver(&self, uid: &str) {
        self.with(uid, |known| known.begun = None);
    }

    /// Whether a driver of an attempt that no cache has may be there all the same.
    pub(super) fn may_have_driver(&self, uid: &str, attempt: i32) -> bool {
        let jobs = self.jobs.lock();
        jobs.get(uid)
            .is_none_or(|known| known.begun != Some(attempt))
    }

    /// This process held a job: no version before that one says otherwise.
    pub(super) fn holds(&self, uid: &str, version: Option<u64>) {
        self.with(uid, |known| known.held = version);
    }

    /// Whether a version of a job is behind the hold of it.
    pub(super) fn is_behind_hold(&self, uid: &str, version: Option<u64>) -> bool {
        let jobs = self.jobs.lock();
        jobs.get(uid).is_some_and(|known| version < known.held)
    }

    /// The driver that is asked.
    pub(super) fn driver(&self, uid: &str) -> Option<String> {
        self.jobs.lock().get(uid)?.driver.clone()
    }

    /// From now on this driver is asked. Answers the one that no longer is.
    pub(super) fn follow(&self, uid: &str, driver: Option<String>) -> Option<String> {
        self.with(uid, |known| {
            if known.driver == driver {
                return None;
            }
            std::mem::replace(&mut known.driver, driver)
        })
    }

    /// Why the last acts failed.
    pub(super) fn hindrance(&self, uid: &str) -> Option<Trouble> {
        self.jobs.lock().get(uid)?.hindrance.clone()
    }

    /// Remembers why acts failed; answers whether that is news.
    pub(super) fn hinder(&self, uid: &str, hindrance: Option<Trouble>) -> bool {
        self.with(uid, |known| {
            let is_news = known.hindrance != hindrance;
            known.hindrance = hindrance;
            is_news
        })
    }

    /// Why agents' Pods were refused.
    pub(super) fn refusal(&self, uid: &str) -> Option<AgentsRefusal> {
        self.jobs.lock().get(uid)?.agents.refusal.clone()
    }

    /// Remembers what became of agents' Pods that were asked for; answers whether that is news.
    pub(super) fn note_agents(
        &self,
        uid: &str,
        plan: &AgentsPlan,
        made: &Agents,
        now: Timestamp,
    ) -> bool {
        self.with(uid, |known| {
            known.agents.surplus = plan.surplus;
            let before = known.agents.refusal.take();
            known.agents.refusal = match made {
                Agents::Refused(trouble) => Some(AgentsRefusal {
                    trouble: trouble.clone(),
                    at: now,
                    times: before
                        .as_ref()
                        .map_or(0, |before| before.times)
                        .saturating_add(1),
                }),
                // None was asked for, because they were refused a moment ago.
                Agents::Made if plan.is_refused => before.clone(),
                Agents::Made => None,
            };
            known.agents.refusal != before
        })
    }

    fn with<T>(&self, uid: &str, change: impl FnOnce(&mut Remembered) -> T) -> T {
        change(self.jobs.lock().entry(uid.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::Memories;

    #[test]
    fn only_who_began_an_attempt_and_asked_for_no_driver_knows_that_there_is_none() {
        let memories = Memories::default();
        assert!(memories.may_have_driver("a", 1), "another process began it");
        memories.begins("a", 1);
        assert!(!memories.may_have_driver("a", 1));
        assert!(memories.may_have_driver("a", 2), "another process began it");
        assert!(memories.may_have_driver("b", 1));
        memories.asked_for_driver("a");
        assert!(memories.may_have_driver("a", 1));
        memories.begins("a", 2);
        memories.forget("a");
        assert!(memories.may_have_driver("a", 2));
    }
    #[test]
    fn a_cache_that_is_behind_holds_no_job_twice() {
        let memories = Memories::default();
        assert!(!memories.is_behind_hold("a", Some(4)));
        memories.holds("a", Some(7));
        assert!(memories.is_behind_hold("a", Some(4)));
        assert!(!memories.is_behind_hold("a", Some(7)));
        assert!(!memories.is_behind_hold("b", Some(4)));
    }
}
