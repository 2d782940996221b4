//! The passage of time: prefills end, steps are taken, requests end.

use std::cmp::Reverse;

use super::request::Stage;
use super::{Ending, Key, Nanos, Phase, Scheduler};

impl Scheduler {
    /// Brings the state to `now`.
    pub(super) fn settle(&mut self, now: Nanos) {
        loop {
            match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Idle => return,
                Phase::Prefill { batch, until } => {
                    if until > now {
                        self.phase = Phase::Prefill { batch, until };
                        return;
                    }
                    self.end_prefill(&batch, until);
                    self.publish_load(until);
                    self.decide(until);
                }
                Phase::Decode {
                    start,
                    step,
                    done,
                    target,
                } => {
                    let reached = now.saturating_sub(start) / step;
                    let taken = reached.clamp(done, target);
                    self.take_steps(start, step, done, taken);
                    if taken < target {
                        self.phase = Phase::Decode {
                            start,
                            step,
                            done: taken,
                            target,
                        };
                        return;
                    }
                    let at = start + step * target;
                    self.end_due(at);
                    self.decide(at);
                }
            }
        }
    }

    fn take_steps(&mut self, start: Nanos, step: Nanos, done: u64, taken: u64) {
        if taken == done {
            return;
        }
        let before = self.steps;
        self.steps += taken - done;
        self.private_tokens += self.running * usize::try_from(taken - done).unwrap_or(usize::MAX);
        self.make_room();
        self.statistics.decoded(taken - done, self.running, step);
        let publish_at = self.steps - self.steps % super::load::PUBLISH_STEPS;
        if publish_at > before {
            let later = self.steps - publish_at;
            self.publish_load_of(start + step * (taken - later), later);
        }
    }

    /// Ends every running request whose last step was taken.
    fn end_due(&mut self, at: Nanos) {
        while let Some(Reverse((step, key))) = self.finishing.peek().copied() {
            if step > self.steps {
                break;
            }
            self.finishing.pop();
            let Some(request) = self.due(key, step) else {
                continue;
            };
            let ending = if request.aborting {
                Ending::Aborted
            } else {
                Ending::Complete
            };
            self.finish(key, ending, at);
        }
    }

    fn due(&self, key: Key, step: u64) -> Option<&super::Request> {
        self.requests
            .get(&key)
            .filter(|request| request.stage == Stage::Running && request.finish_step == step)
    }

    /// What the engine does next, at a boundary between two steps.
    pub(super) fn decide(&mut self, now: Nanos) {
        self.phase = Phase::Idle;
        if self.paused.is_some() {
            return;
        }
        if !self.waiting.is_empty() && self.start_prefill(now) {
            return;
        }
        if self.running == 0 {
            self.publish_load(now);
            return;
        }
        if self.room_for_steps() == 0 && self.running > 1 {
            self.retract_one(now);
        }
        let target = self.steps_to_next_end().min(self.room_for_steps().max(1));
        let step = self.step_time();
        self.phase = Phase::Decode {
            start: now,
            step,
            done: 0,
            target,
        };
    }

    /// Makes the scheduler look at its queue again: at once when idle, else after the step in flight.
    pub(super) fn interrupt(&mut self, now: Nanos) {
        match &mut self.phase {
            Phase::Idle => self.decide(now),
            Phase::Prefill { .. } => {}
            Phase::Decode { done, target, .. } => *target = (*target).min(*done + 1),
        }
    }

    fn steps_to_next_end(&mut self) -> u64 {
        while let Some(Reverse((step, key))) = self.finishing.peek().copied() {
            if self.due(key, step).is_some() {
                return step.saturating_sub(self.steps).max(1);
            }
            self.finishing.pop();
        }
        1
    }

    fn room_for_steps(&self) -> u64 {
        let used = self.cache.protected() + self.private_tokens;
        (self.limits.kv_tokens.saturating_sub(used) / self.running.max(1)) as u64
    }

    /// One decode step of the running batch.
    pub(super) fn step_time(&self) -> Nanos {
        let alone = 1_000_000_000 / u64::from(self.limits.decode_tokens_per_second.max(1));
        let others = self.running.saturating_sub(1) as u64;
        (alone + alone * u64::from(self.limits.slowdown_percent) * others / 100).max(1)
    }
}
