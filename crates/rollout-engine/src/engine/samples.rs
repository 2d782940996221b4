//! Executions of samples: results, refills, rejections.

use std::time::Duration;

use super::{Engine, Mode};
use crate::command::{Blame, Command};
use crate::config::Scoring;
use crate::event::SampleEnd;
use crate::group::{Phase, SlotState, slot_mut};
use crate::ids::SampleKey;

impl Engine {
    pub(super) fn sample_ended(&mut self, key: SampleKey, end: SampleEnd, now: Duration) {
        if !self.running.remove(&key) {
            return;
        }
        let closing = !matches!(self.mode, Mode::Sampling);
        let Some(group) = self.groups.get_mut(&key.take) else {
            if let SampleEnd::Finished { tokens, .. } | SampleEnd::Aborted { tokens } = end {
                self.discarded_tokens += tokens;
            }
            return;
        };
        let Some(slot) = group.slots.get_mut(key.slot as usize) else {
            return;
        };
        if group.phase != Phase::Working
            || slot.state != SlotState::Running
            || slot.attempt != key.attempt
        {
            return;
        }
        match end {
            SampleEnd::Finished { scorable, tokens } => {
                self.budget.sample_finished();
                if tokens > 0 {
                    self.outage.served();
                }
                group.tokens += tokens;
                slot.has_samples = true;
                let wants_score = scorable && self.config.scoring != Scoring::None;
                slot.state = if wants_score {
                    SlotState::Generated
                } else {
                    SlotState::Done
                };
                if wants_score && self.config.scoring == Scoring::Sample && !closing {
                    self.out.push(Command::Score {
                        take: key.take,
                        slot: key.slot,
                    });
                }
                self.group_moved(key.take);
            }
            SampleEnd::Aborted { tokens } if closing => {
                group.tokens += tokens;
                slot.has_samples |= tokens > 0;
                slot.state = SlotState::Aborted;
                self.group_moved(key.take);
            }
            SampleEnd::Infra { .. }
            | SampleEnd::Unserved { .. }
            | SampleEnd::SharedDeath { .. }
            | SampleEnd::OutOfMemory { .. }
            | SampleEnd::Setup { .. }
            | SampleEnd::Unusable { .. }
                if closing =>
            {
                slot.state = SlotState::Aborted;
                self.group_moved(key.take);
            }
            SampleEnd::Aborted { .. } => self.refill(key, "aborted_from_outside", now),
            // Each sample has only so many of these: they end by themselves, and say nothing about the machinery.
            SampleEnd::SharedDeath { .. }
                if slot.shared_deaths < self.config.limits.shared_deaths =>
            {
                slot.shared_deaths += 1;
                self.infra_failures += 1;
                self.run_again(key, now);
            }
            SampleEnd::Infra { cause } | SampleEnd::SharedDeath { cause } => {
                self.refill(key, &cause, now);
            }
            SampleEnd::OutOfMemory { cause } => {
                slot.out_of_memory = Blame::Agent;
                self.refill(key, &cause, now);
            }
            SampleEnd::Unserved { .. } => self.wait_for_engines(key, now),
            SampleEnd::Setup { cause } => {
                self.budget.setup_failed();
                self.refill(key, &cause, now);
            }
            SampleEnd::Unusable { cause, problem } => {
                self.budget.agent_unusable(problem);
                self.refill(key, &cause, now);
            }
            SampleEnd::Rejected { reason } => self.fail_group(key.take, &reason, false),
        }
    }

    /// Runs one sample again after a failure that was not the policy's, up to a limit.
    fn refill(&mut self, key: SampleKey, cause: &str, now: Duration) {
        self.infra_failures += 1;
        let Some(slot) = slot_mut(&mut self.groups, key.take, key.slot) else {
            return;
        };
        self.budget.infra_failed(cause, slot.started, now);
        if slot.refills >= self.config.limits.sample_refills {
            let reason = format!("infra: {cause}");
            let rounds = self.budget.failures_in_a_row();
            self.fail_group(key.take, &reason, true);
            if self.budget.failures_in_a_row() > rounds {
                self.outage.round(self.executions, &self.config.limits, now);
            }
            return;
        }
        slot.refills += 1;
        self.run_again(key, now);
    }

    /// Runs one sample again as soon as engines may be back.
    fn wait_for_engines(&mut self, key: SampleKey, now: Duration) {
        self.infra_failures += 1;
        let Some(slot) = slot_mut(&mut self.groups, key.take, key.slot) else {
            return;
        };
        let limits = &self.config.limits;
        self.outage
            .unserved(slot.execution, self.executions, limits, now);
        let soon = now + limits.refill_backoff;
        let due = self
            .outage
            .closed_until()
            .map_or(soon, |until| until.max(soon));
        self.run_again_at(key, due);
    }

    /// Queues the next execution of a sample, after a pause.
    fn run_again(&mut self, key: SampleKey, now: Duration) {
        let Some(slot) = slot_mut(&mut self.groups, key.take, key.slot) else {
            return;
        };
        let before = (slot.refills + slot.shared_deaths).saturating_sub(1);
        let pause = self.config.limits.backoff(before);
        self.run_again_at(key, now + pause);
    }

    fn run_again_at(&mut self, key: SampleKey, due: Duration) {
        let Some(slot) = slot_mut(&mut self.groups, key.take, key.slot) else {
            return;
        };
        slot.attempt += 1;
        slot.state = SlotState::Queued;
        let next = SampleKey {
            attempt: slot.attempt,
            ..key
        };
        self.queue.push_at(next, due);
    }
}
