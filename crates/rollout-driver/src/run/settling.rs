//! What becomes of samples: kept ones go to the ledger and then to the output, cut ones wait in the ledger, the rest is written when
//! the job asks for everything.

use std::sync::Arc;

use rollout_engine::{TakeEnd, TakeId};
use rollout_session::Sample;

use super::report::Report;
use super::shell::Shell;
use super::work::Work;
use super::writing::{Kept, write_part, write_step};
use crate::config::seconds;
use crate::error::DriverError;
use crate::ledger::Op;
use crate::output::{NotKept, StepSummary};

impl Shell {
    /// The take is over: its samples go to the ledger, to the output's rest, or nowhere.
    pub(super) fn settle(&mut self, take: TakeId, end: &TakeEnd, keep_samples: bool) {
        let Some(work) = self.work.remove(&take) else {
            return;
        };
        work.cancel.cancel();
        let (group, step) = (work.group, self.step());
        if let (TakeEnd::Kept, Some(rows)) = (end, &work.rows) {
            self.counters
                .kept(work.samples(), &self.setup.scorer.rewards.key);
            self.ops.push(Op::Kept {
                take,
                step,
                group,
                rows: Arc::clone(rows),
            });
            self.kept.push(Kept {
                step,
                group,
                rows: Arc::clone(rows),
            });
        } else {
            self.write_rest(take, &work, end);
        }
        if keep_samples {
            let slots = work.stored(step.0, self.setup.generate.resumes());
            self.ops.push(Op::Partials { group, slots });
        } else if work.has_stored {
            self.ops.push(Op::ForgetPartials { group });
        }
    }

    fn write_rest(&mut self, take: TakeId, work: &Work, end: &TakeEnd) {
        if !self.setup.config.spec.output.include_all {
            return;
        }
        let samples: Vec<Sample> = work.samples().cloned().collect();
        let output = Arc::clone(&self.setup.output);
        let (group, step, end) = (work.group, self.step(), end.clone());
        self.tasks.spawn_blocking(move || {
            let why = NotKept {
                take: take.0,
                state: end.state(),
                reason: end.reason(),
            };
            if let Err(error) = output.not_kept(step.0, group.0, why, &samples) {
                tracing::warn!(%error, %take, "samples that were not kept are not in the output");
            }
        });
    }

    pub(super) fn write_part(&mut self, kept: Kept) {
        let output = Arc::clone(&self.setup.output);
        let reports = self.setup.reports.clone();
        let patience = seconds(self.setup.config.timeouts.output_seconds);
        self.tasks.spawn(async move {
            let report = match write_part(output, kept, patience, &reports).await {
                Ok(()) => Report::PartWritten,
                Err(error) => Report::Fatal(error),
            };
            drop(reports.send(report));
        });
    }

    /// Kept groups of an earlier process: their parts are written again, which changes nothing where they are whole.
    pub(super) fn write_again(&mut self) {
        let step = self.step();
        match self.setup.ledger.kept(step) {
            Ok(groups) => {
                for group in groups {
                    let kept = Kept {
                        step,
                        group: group.group,
                        rows: group.rows.into(),
                    };
                    self.outbox.submitted(0, kept);
                }
                for kept in self.outbox.committed(0) {
                    self.write_part(kept);
                }
            }
            Err(error) => self.fatal(error.into()),
        }
    }

    pub(super) fn write_due_step(&mut self) {
        let Some((step, complete)) = self.outbox.due() else {
            return;
        };
        let (output, ledger) = (
            Arc::clone(&self.setup.output),
            Arc::clone(&self.setup.ledger),
        );
        let reports = self.setup.reports.clone();
        let patience = seconds(self.setup.config.timeouts.output_seconds);
        let mut summary = StepSummary {
            step: step.0,
            complete,
            kept: Vec::new(),
            ledger: self.setup.engine.book().current(),
            metrics: self.metrics(),
        };
        self.tasks.spawn(async move {
            let listed = tokio::task::spawn_blocking(move || ledger.kept_groups(step)).await;
            let report = match listed {
                Ok(Ok(groups)) => {
                    summary.kept = groups.iter().map(|group| group.0).collect();
                    match write_step(output, summary, patience, &reports).await {
                        Ok(()) => Report::StepWritten(step),
                        Err(error) => Report::Fatal(error),
                    }
                }
                Ok(Err(error)) => Report::Fatal(error.into()),
                Err(error) => Report::Fatal(DriverError::Task {
                    problem: error.to_string(),
                }),
            };
            drop(reports.send(report));
        });
    }
}
