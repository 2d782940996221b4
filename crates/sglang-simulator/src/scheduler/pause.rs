//! Pausing and continuing generation.

use super::request::Stage;
use super::{Nanos, Pause, Phase, Scheduler};

impl Scheduler {
    /// Stops at once; the step or prefill in flight is given up and done again later.
    pub fn pause(&mut self, mode: Pause, now: Nanos) {
        self.settle(now);
        if let Phase::Prefill { batch, .. } = std::mem::replace(&mut self.phase, Phase::Idle) {
            self.requeue_prefill(&batch, now);
        }
        if mode == Pause::Retract {
            let steps = self.steps;
            let mut running: Vec<_> = self
                .requests
                .iter()
                .filter(|(_, request)| request.stage == Stage::Running)
                .map(|(key, request)| (request.generated(steps), *key))
                .collect();
            // the furthest comes first, and back first
            running.sort_unstable();
            for (_, key) in running {
                self.requeue_running(key, now);
            }
        }
        self.paused = Some(mode);
    }

    /// Goes on.
    pub fn resume(&mut self, now: Nanos) {
        self.settle(now);
        if self.paused.take().is_some() {
            self.decide(now);
        }
    }

    /// Whether generation is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }
}
