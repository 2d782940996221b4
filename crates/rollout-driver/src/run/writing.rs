//! Kept groups on their way to the output: ledger first, then a part, then the step's files.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rollout_engine::{GroupIndex, Step};
use tokio::sync::mpsc;

use super::report::Report;
use crate::error::{DriverError, chain};
use crate::output::{OutputError, ResultEntry, StepSummary, Writer};

/// A kept group that is not in the output yet.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) step: Step,
    pub(super) group: GroupIndex,
    pub(super) rows: Arc<[u8]>,
}

/// Which kept groups wait for what.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// For the ledger's commit.
    uncommitted: VecDeque<(u64, Kept)>,
    /// Being written.
    unwritten: usize,
    /// The step whose files are wanted once nothing waits any more.
    wanted: Option<(Step, bool)>,
}

impl Outbox {
    pub(super) fn submitted(&mut self, number: u64, kept: Kept) {
        self.uncommitted.push_back((number, kept));
    }

    /// Groups that are durable now, to be written as parts.
    pub(super) fn committed(&mut self, number: u64) -> Vec<Kept> {
        let mut durable = Vec::new();
        while let Some((submission, _)) = self.uncommitted.front()
            && *submission <= number
            && let Some((_, kept)) = self.uncommitted.pop_front()
        {
            durable.push(kept);
        }
        self.unwritten += durable.len();
        durable
    }

    /// Nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.uncommitted.is_empty() && self.unwritten == 0
    }

    pub(super) fn written(&mut self) {
        self.unwritten = self.unwritten.saturating_sub(1);
    }

    pub(super) fn want(&mut self, step: Step, complete: bool) {
        self.wanted = Some((step, complete));
    }

    /// The step whose files can be written.
    pub(super) fn due(&mut self) -> Option<(Step, bool)> {
        if self.unwritten > 0 || !self.uncommitted.is_empty() {
            return None;
        }
        self.wanted.take()
    }
}

/// Writes one part, again while the file system refuses, up to a limit.
pub(super) async fn write_part(
    output: Arc<Writer>,
    kept: Kept,
    patience: Duration,
    reports: &Reports,
) -> Result<(), DriverError> {
    let Kept { step, group, rows } = kept;
    let write = move || output.keep(step.0, group.0, &rows);
    persist(patience, write, |problem| delayed(reports, problem)).await
}

/// Writes the files of a step, again while the file system refuses, up to a limit.
pub(super) async fn write_step(
    output: Arc<Writer>,
    summary: StepSummary,
    patience: Duration,
    reports: &Reports,
) -> Result<(), DriverError> {
    let write = move || output.finish_step(&summary).map(drop);
    persist(patience, write, |problem| delayed(reports, problem)).await
}

/// Writes how the job ended, again while the file system refuses, up to a limit.
pub(super) async fn write_result(
    output: Arc<Writer>,
    result: ResultEntry,
    patience: Duration,
) -> Result<(), DriverError> {
    persist(patience, move || output.decide(result.clone()), |_| {}).await
}

type Reports = mpsc::UnboundedSender<Report>;

fn delayed(reports: &Reports, problem: &str) {
    drop(reports.send(Report::OutputDelayed(problem.to_owned())));
}

async fn persist(
    patience: Duration,
    write: impl Fn() -> Result<(), OutputError> + Send + Sync + 'static,
    refused: impl Fn(&str),
) -> Result<(), DriverError> {
    const PAUSE: Duration = Duration::from_secs(1);
    let deadline = tokio::time::Instant::now() + patience;
    let write = Arc::new(write);
    loop {
        let once = Arc::clone(&write);
        let problem = match tokio::task::spawn_blocking(move || once()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => {
                if !may_pass(&error) || tokio::time::Instant::now() >= deadline {
                    return Err(DriverError::Output(error));
                }
                chain(&error)
            }
            Err(error) => {
                return Err(DriverError::Task {
                    problem: error.to_string(),
                });
            }
        };
        tracing::warn!(problem, "the output was not written, trying again");
        refused(&problem);
        tokio::time::sleep(PAUSE).await;
    }
}

/// A full or failing file system may recover; a directory that is not ours will not.
fn may_pass(error: &OutputError) -> bool {
    matches!(error, OutputError::NoSpace { .. } | OutputError::Io { .. })
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_full_file_system_is_told_and_tried_again() {
        let left = Mutex::new(2);
        let told = Mutex::new(Vec::new());
        let write = move || {
            let mut left = left.lock();
            if *left == 0 {
                return Ok(());
            }
            *left -= 1;
            let full = std::io::ErrorKind::StorageFull.into();
            Err(OutputError::NoSpace {
                operation: "write",
                path: "out/a".into(),
                source: full,
            })
        };
        let refused = |problem: &str| told.lock().push(problem.to_owned());
        persist(Duration::from_mins(10), write, refused)
            .await
            .unwrap();
        let told = told.into_inner();
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("free some"), "{told:?}");
    }
}
