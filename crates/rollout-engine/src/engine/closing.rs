//! The end of a step: the teardown ladder, the output, and what comes after.

use std::time::Duration;

use super::{Engine, Mode, stopped_by};
use crate::book::Record;
use crate::command::{Command, Reason};
use crate::group::{Phase, SlotState};
use crate::ids::{SampleKey, TakeId};
use crate::teardown::{Ladder, LadderStep, Rung};

impl Engine {
    /// Begins the ladder. Stop: nothing new is taken or started; what is queued or only being scored is recycled at once.
    pub(super) fn close(&mut self, why: Reason, message: String) {
        let ladder = Box::new(Ladder::new(self.config.ladder.clone(), &self.book.rungs));
        self.mode = Mode::Closing {
            why,
            message,
            ladder,
        };
        self.queue.clear();
        let idle: Vec<TakeId> = self
            .groups
            .iter()
            .filter(|(_, group)| !group.running() && group.phase != Phase::Filtering)
            .map(|(take, _)| *take)
            .collect();
        for take in idle {
            self.recycle(take, "unneeded");
        }
    }

    pub(super) fn climb(&mut self, now: Duration) {
        let in_flight = self.running.len() as u64;
        let Mode::Closing { ladder, .. } = &mut self.mode else {
            return;
        };
        for step in ladder.advance(in_flight, now) {
            match step {
                LadderStep::Report(report) => self.write(Record::Rung {
                    step: self.book.step,
                    report,
                }),
                LadderStep::Climb { rung, within } => {
                    if rung == Rung::SecondAbort {
                        self.cancel_running();
                    }
                    self.out.push(Command::Climb { rung, within });
                }
                LadderStep::Finished => self.ladder_done(),
            }
        }
    }

    fn cancel_running(&mut self) {
        let keys: Vec<SampleKey> = self.running.iter().copied().collect();
        for key in keys {
            self.out.push(Command::Cancel { key });
        }
    }

    /// What did not even end when it was cancelled is given up here; its prompt is recycled with what it has.
    fn ladder_done(&mut self) {
        for take in self.groups.keys().copied().collect::<Vec<_>>() {
            if let Some(group) = self.groups.get_mut(&take) {
                for slot in &mut group.slots {
                    if slot.state == SlotState::Running {
                        slot.state = SlotState::Aborted;
                    }
                }
            }
            self.recycle(take, "unneeded");
        }
        self.running.clear();
        let Mode::Closing { why, message, .. } = std::mem::replace(&mut self.mode, Mode::Done)
        else {
            return;
        };
        if why == Reason::Interrupted {
            self.finish(why, message);
            return;
        }
        self.mode = Mode::Writing { why, message };
        self.out.push(Command::WriteStep {
            step: self.book.step,
            complete: why == Reason::TargetReached,
        });
    }

    pub(super) fn step_written(&mut self) {
        let Mode::Writing { why, message } = std::mem::replace(&mut self.mode, Mode::Done) else {
            return;
        };
        if why != Reason::TargetReached {
            self.finish(why, message);
            return;
        }
        self.write(Record::StepClosed {
            step: self.book.step,
        });
        if self.book.step.0 >= self.config.steps {
            self.finish(why, message);
            return;
        }
        if let Some(cause) = self.stop {
            let (reason, message) = stopped_by(cause);
            self.finish(reason, message);
        } else {
            self.mode = Mode::Sampling;
            self.out.push(Command::Reopen {
                step: self.book.step,
            });
        }
    }
}
