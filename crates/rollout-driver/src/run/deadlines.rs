//! The job's own deadlines, on this process's clock: they run also while engines are waited for.

use std::time::Duration;

use rollout_engine::Book;
use tokio::time::Instant;

use crate::config::JobSpec;

/// When the job has to end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deadlines {
    /// `activeDeadlineSeconds`, from the first start of the job.
    pub(super) job: Option<Instant>,
    /// `preRunningDeadlineSeconds`, from this start: an earlier one may have been stopped before it came to it.
    pub(super) running: Option<Instant>,
}

impl Deadlines {
    /// `age` is how long ago the job was started first.
    pub(super) fn of(spec: &JobSpec, age: Duration, now: Instant) -> Self {
        let after = |seconds| now + Duration::from_secs(seconds);
        let job = spec.active_deadline_seconds;
        Self {
            job: job.map(|limit| now + Duration::from_secs(limit).saturating_sub(age)),
            running: spec.pre_running_deadline_seconds.map(after),
        }
    }

    /// The first one that ends a job which does not generate.
    pub(super) fn while_waiting(&self, book: &Book) -> Option<Instant> {
        let running = self.running.filter(|_| !has_generated(book));
        [self.job, running].into_iter().flatten().min()
    }
}

/// Whether earlier starts generated anything.
pub(super) fn has_generated(book: &Book) -> bool {
    let earlier = book.total();
    earlier.kept > 0 || !earlier.filtered.is_empty()
}
