//! The commands that start a task.

use std::sync::Arc;
use std::time::Duration;

use rollout_engine::{Blame, Company, GroupIndex, Reach, Rung, SampleKey, Step, TakeId};
use rollout_session::Sample;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::report::Report;
use super::rows::RowSource;
use super::shell::Shell;
use super::work::Work;
use crate::error::{DriverError, chain};
use crate::generate::{GenerateInput, Generated, reaches};

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

    pub(super) fn generate(&mut self, key: SampleKey, company: Company, out_of_memory: Blame) {
        let Some((sample, work)) = self
            .work
            .get(&key.take)
            .and_then(|work| Some((work.begin(key.slot)?, work)))
        else {
            return;
        };
        if key.attempt == 0 {
            let waited = work.since.elapsed();
            self.setup.board.metrics().queued(waited);
        }
        let cancel = CancellationToken::new();
        self.running.insert(key, cancel.clone());
        let input = GenerateInput {
            sample,
            prompt: work.prompt.clone(),
            slot: key.slot,
            step: self.step().0,
            cancel,
            reach: self.reach.subscribe(),
            company,
            out_of_memory,
        };
        let function = Arc::clone(&self.setup.generate);
        let mut admitted = self.admitted.subscribe();
        let mut owed = Owed::new(key, self.setup.reports.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                _ = admitted.wait_for(|admitted| *admitted) => {}
                () = input.cancel.cancelled() => {}
            }
            let reach = input.reach.clone();
            owed.generated = Some(tokio::select! {
                biased;
                generated = function.run(input) => generated,
                // Its session or request is out of reach: the next start ends what the ledger knows of it.
                () = reaches(reach, Reach::RouterGone) => Generated::aborted(Vec::new(), 0),
            });
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
        let metrics = Arc::clone(self.setup.board.metrics());
        self.tasks.spawn(async move {
            let began = Instant::now();
            let rewards = tokio::select! {
                rewards = pool.score(samples) => rewards,
                () = cancel.cancelled() => return,
            };
            metrics.rewarded(began.elapsed());
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
                Err(error) => drop(reports.send(Report::NotReopened(DriverError::Router {
                    url: router.url().to_owned(),
                    problem: chain(&error),
                }))),
            }
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
