//! What tasks report, turned into events of the batch loop.

use rollout_engine::{Event, SampleEnd, SampleKey, ScoreEnd, TakeId, Verdict};
use rollout_session::SampleStatus;

use super::report::{Loaded, Report, Unloaded};
use super::scoring::Unscored;
use super::shell::Shell;
use crate::generate::Generated;
use crate::ledger::Op;

/// The batch loop's name of a sample that was aborted outside of a teardown.
const ABORTED_FROM_OUTSIDE: &str = "aborted_from_outside";

impl Shell {
    /// Takes in one report.
    pub(super) fn report(&mut self, report: Report) {
        match report {
            Report::Loaded(take, loaded) => self.loaded(take, *loaded),
            Report::Generated(key, generated) => self.generated(key, *generated),
            Report::Scored(take, slot, rewards) => self.scored(take, Some(slot), rewards),
            Report::GroupScored(take, rewards) => self.scored(take, None, rewards),
            Report::Filtered(take, decided) => {
                if let (Some(problem), Verdict::Drop { reason } | Verdict::Fail { reason }) =
                    (&decided.problem, &decided.verdict)
                {
                    self.counters.failed(reason, problem);
                }
                if let Some(work) = self.work.get_mut(&take) {
                    work.rows = decided.rows;
                    self.event(Event::Filtered {
                        take,
                        verdict: decided.verdict,
                    });
                }
            }
            Report::Rung(rung, report) => self.event(Event::RungEnded { rung, report }),
            Report::Ledger(Ok(number)) => {
                self.committed = number;
                for kept in self.outbox.committed(number) {
                    self.write_part(kept);
                }
                self.write_due_step();
            }
            Report::Ledger(Err(error)) => self.fatal(error.into()),
            Report::PartWritten => {
                self.outbox.written();
                self.write_due_step();
            }
            Report::StepWritten(step) => {
                self.show_step(step);
                self.ops.push(Op::StepInOutput { step });
                self.event(Event::StepWritten);
            }
            Report::OutputDelayed(problem) => {
                self.counters.failed("output_not_written", &problem);
            }
            // A ladder that has begun meanwhile closes what is still closed, and says itself who does not answer.
            Report::NotReopened(error) if self.setup.engine.progress().tearing_down => {
                tracing::warn!(%error, "admission was not opened before it is closed again");
            }
            Report::NotReopened(error) | Report::Fatal(error) => self.fatal(error),
        }
    }

    fn loaded(&mut self, take: TakeId, loaded: Result<Loaded, Unloaded>) {
        let Some(work) = self.work.get_mut(&take) else {
            return;
        };
        match loaded {
            Ok(loaded) => {
                let rollout = &self.setup.config.spec.rollout;
                let mask = rollout
                    .partial
                    .is_some_and(|partial| partial.mask_off_policy);
                let slots = work.load(loaded, rollout.samples_per_prompt, mask);
                self.event(Event::PromptReady { take, slots });
            }
            Err(Unloaded::BadRow(problem)) => {
                tracing::warn!(problem, "a row of the data set cannot be used");
                self.counters.failed("bad_row", &problem);
                self.event(Event::PromptRefused { take });
            }
            Err(Unloaded::Skipped(reason)) => self.event(Event::PromptSkipped {
                take,
                reason: reason.to_owned(),
            }),
        }
    }

    fn generated(&mut self, key: SampleKey, generated: Generated) {
        self.running.remove(&key);
        self.counters.generated(&generated);
        if let Some(problem) = &generated.problem {
            tracing::debug!(%key, problem, "a sample did not end well");
        }
        if matches!(generated.end, SampleEnd::Aborted { .. })
            && self.work.contains_key(&key.take)
            && !self.setup.engine.progress().tearing_down
        {
            let problem = "the request or session was ended by somebody else";
            self.counters.failed(ABORTED_FROM_OUTSIDE, problem);
        }
        let Generated { samples, end, .. } = generated;
        let resumes = self.setup.generate.resumes() && self.setup.engine.config().partial;
        if let Some(slot) = self
            .work
            .get_mut(&key.take)
            .and_then(|work| work.slots.get_mut(key.slot as usize))
            && !samples.is_empty()
        {
            match end {
                SampleEnd::Finished { .. } => {
                    slot.samples = samples;
                    slot.finished = true;
                }
                SampleEnd::Aborted { .. }
                    if resumes || self.setup.config.spec.output.include_all =>
                {
                    slot.samples = samples;
                    for sample in &mut slot.samples {
                        sample.status = SampleStatus::Aborted;
                    }
                }
                _ => {}
            }
        }
        self.event(Event::SampleEnded { key, end });
    }

    fn scored(
        &mut self,
        take: TakeId,
        slot: Option<u32>,
        rewards: Result<Vec<Option<serde_json::Value>>, Unscored>,
    ) {
        let Some(work) = self.work.get_mut(&take) else {
            return;
        };
        let end = match rewards {
            Ok(rewards) => {
                work.set_rewards(slot, rewards);
                ScoreEnd::Scored
            }
            Err(Unscored::Failed(problem)) => {
                tracing::warn!(%take, problem, "a reward failed");
                self.counters.failed("reward_failed", &problem);
                ScoreEnd::Failed
            }
            Err(Unscored::Unusable(problem)) => {
                tracing::warn!(%take, problem, "the reward function cannot be called");
                self.counters.failed("reward_unusable", &problem);
                ScoreEnd::Unusable { problem }
            }
        };
        self.event(match slot {
            Some(slot) => Event::SampleScored { take, slot, end },
            None => Event::GroupScored { take, end },
        });
    }
}
