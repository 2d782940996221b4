//! The commands that start a task.

use std::sync::Arc;
use std::time::Duration;

use rollout_engine::{GroupIndex, Rung, SampleKey, Step, TakeEnd, TakeId};
use rollout_session::Sample;
use sglang_client::Prompt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::report::{Loaded, Report, Stored, Unloaded};
use super::shell::Shell;
use super::work::Work;
use super::writing::{Kept, write_part, write_step};
use crate::config::seconds;
use crate::dataset::{Cursor, Dataset};
use crate::error::DriverError;
use crate::generate::{GenerateInput, Generated, PromptMaker};
use crate::ledger::{Ledger, Op};
use crate::output::{NotKept, StepSummary};

impl Shell {
    pub(super) fn load(&mut self, take: TakeId, group: GroupIndex) {
        self.work.insert(take, Work::new(group));
        let source = RowSource {
            dataset: Arc::clone(&self.setup.dataset),
            ledger: Arc::clone(&self.setup.ledger),
            prompts: self
                .setup
                .config
                .spec
                .generate
                .agentic
                .is_none()
                .then(|| self.setup.prompts.clone()),
            samples_per_prompt: self.setup.config.spec.rollout.samples_per_prompt,
            max_prompt_tokens: self.setup.config.spec.dataset.max_prompt_tokens,
            stored: self
                .setup
                .engine
                .book()
                .open
                .get(&take)
                .is_some_and(|open| open.samples),
        };
        let reports = self.setup.reports.clone();
        self.tasks.spawn_blocking(move || {
            let loaded = source.load(group);
            drop(reports.send(Report::Loaded(take, Box::new(loaded))));
        });
    }

    pub(super) fn generate(&mut self, key: SampleKey) {
        let Some((sample, work)) = self
            .work
            .get(&key.take)
            .and_then(|work| Some((work.begin(key.slot)?, work)))
        else {
            return;
        };
        let cancel = CancellationToken::new();
        self.running.insert(key, cancel.clone());
        let input = GenerateInput {
            sample,
            prompt: work.prompt.clone(),
            slot: key.slot,
            step: self.step().0,
            cancel,
        };
        let function = Arc::clone(&self.setup.generate);
        let mut admitted = self.admitted.subscribe();
        let mut owed = Owed::new(key, self.setup.reports.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                _ = admitted.wait_for(|admitted| *admitted) => {}
                () = input.cancel.cancelled() => {}
            }
            owed.generated = Some(function.run(input).await);
            drop(owed);
        });
    }

    pub(super) fn score(&mut self, take: TakeId, slot: Option<u32>) {
        let Some(work) = self.work.get(&take) else {
            return;
        };
        let samples: Vec<Sample> = match slot {
            Some(slot) => match work.slots.get(slot as usize) {
                Some(slot) => slot.samples.clone(),
                None => return,
            },
            None => work.samples().cloned().collect(),
        };
        let pool = self.setup.scorer.clone();
        let cancel = work.cancel.clone();
        let reports = self.setup.reports.clone();
        self.tasks.spawn(async move {
            let rewards = tokio::select! {
                rewards = pool.score(samples) => rewards,
                () = cancel.cancelled() => return,
            };
            drop(reports.send(match slot {
                Some(slot) => Report::Scored(take, slot, rewards),
                None => Report::GroupScored(take, rewards),
            }));
        });
    }

    pub(super) fn filter(&mut self, take: TakeId) {
        let Some(work) = self.work.get(&take) else {
            return;
        };
        let scored = work.scored(&self.setup.scorer.rewards.key);
        let samples: Vec<Sample> = work.samples().cloned().collect();
        let filter = Arc::clone(&self.setup.filter);
        let cancel = work.cancel.clone();
        let reports = self.setup.reports.clone();
        self.tasks.spawn(async move {
            let decided = tokio::select! {
                decided = filter.decide(samples, &scored) => decided,
                () = cancel.cancelled() => return,
            };
            drop(reports.send(Report::Filtered(take, Box::new(decided))));
        });
    }

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

    pub(super) fn climb(&mut self, rung: Rung, within: Duration) {
        if matches!(rung, Rung::Drain | Rung::Collect) {
            return;
        }
        let climber = self.setup.climber.clone();
        let reports = self.setup.reports.clone();
        let step = self.step().0;
        self.tasks.spawn(async move {
            let report = climber.climb(rung, step, within).await;
            drop(reports.send(Report::Rung(rung, report)));
        });
    }

    pub(super) fn reopen(&mut self, step: Step) {
        self.step_began = Instant::now();
        tracing::info!(%step, "a step begins");
        let router = self.setup.climber.router.clone();
        let reports = self.setup.reports.clone();
        let admitted = self.admitted.clone();
        admitted.send_replace(false);
        self.tasks.spawn(async move {
            match router.reopen().await {
                Ok(()) => {
                    admitted.send_replace(true);
                }
                Err(error) => drop(reports.send(Report::Fatal(DriverError::Router {
                    url: router.url().to_owned(),
                    problem: error.to_string(),
                }))),
            }
        });
    }

    pub(super) fn write_part(&mut self, kept: Kept) {
        let output = Arc::clone(&self.setup.output);
        let reports = self.setup.reports.clone();
        let patience = seconds(self.setup.config.timeouts.output_seconds);
        self.tasks.spawn(async move {
            let report = match write_part(output, kept, patience).await {
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
                    match write_step(output, summary, patience).await {
                        Ok(()) => Report::StepWritten(step),
                        Err(error) => Report::Fatal(error),
                    }
                }
                Ok(Err(error)) => Report::Fatal(error.into()),
                Err(error) => Report::Fatal(DriverError::Output {
                    problem: error.to_string(),
                }),
            };
            drop(reports.send(report));
        });
    }
}

/// The report that every execution owes, also when its task panics.
struct Owed {
    key: SampleKey,
    generated: Option<Generated>,
    reports: tokio::sync::mpsc::UnboundedSender<Report>,
}

impl Owed {
    fn new(key: SampleKey, reports: tokio::sync::mpsc::UnboundedSender<Report>) -> Self {
        Self {
            key,
            generated: None,
            reports,
        }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let generated = self
            .generated
            .take()
            .unwrap_or_else(|| Generated::infra("driver_task", &"the task ended without a result"));
        drop(
            self.reports
                .send(Report::Generated(self.key, Box::new(generated))),
        );
    }
}

/// Where prompts are loaded from. Blocking.
struct RowSource {
    dataset: Arc<Dataset>,
    ledger: Arc<Ledger>,
    /// None for agents, which get the prompt as it is.
    prompts: Option<PromptMaker>,
    samples_per_prompt: u32,
    max_prompt_tokens: Option<usize>,
    stored: bool,
}

impl RowSource {
    fn load(&self, group: GroupIndex) -> Result<Loaded, Unloaded> {
        let bad_row = |problem: String| Unloaded::BadRow(problem);
        let mut row = self
            .dataset
            .next_group(&mut self.cursor(group))
            .map_err(|error| bad_row(error.to_string()))?;
        let mut prompt = None;
        if let Some(maker) = &self.prompts {
            let location = self.dataset.location(row.row);
            let made = maker
                .make(&mut row)
                .map_err(|error| bad_row(format!("{location}: {error}")))?;
            if let (Prompt::Ids(ids), Some(limit)) = (&made, self.max_prompt_tokens)
                && ids.len() > limit
            {
                return Err(Unloaded::Skipped("prompt_too_long"));
            }
            prompt = Some(Arc::new(made));
        }
        Ok(Loaded {
            row,
            prompt,
            stored: self.stored_samples(group),
        })
    }

    /// The place of a group: groups are counted over all rows of all epochs.
    fn cursor(&self, group: GroupIndex) -> Cursor {
        let rows = self.dataset.rows().max(1);
        let index = i64::try_from(group.0).unwrap_or(i64::MAX);
        Cursor {
            epoch: group.0 / rows,
            offset: group.0 % rows,
            group_index: index,
            sample_index: index.saturating_mul(i64::from(self.samples_per_prompt)),
        }
    }

    /// Samples of an earlier take. What cannot be read is generated anew: nothing is lost but work.
    fn stored_samples(&self, group: GroupIndex) -> Vec<Stored> {
        if !self.stored {
            return Vec::new();
        }
        let slots = self.ledger.partials(group).unwrap_or_else(|error| {
            tracing::warn!(%error, %group, "stored samples cannot be read");
            Vec::new()
        });
        let read = slots.into_iter().filter_map(|slot| {
            let samples: Vec<Sample> = serde_json::from_slice(&slot.samples)
                .inspect_err(|error| tracing::warn!(%error, %group, "stored samples are damaged"))
                .ok()?;
            Some(Stored {
                slot: slot.slot,
                finished: slot.finished,
                scored: slot.scored,
                samples,
            })
        });
        read.collect()
    }
}
