//! The router's own end, seen from the requests that it still answers.
//!
//! ```text
//!   told to stop --> fenced, aborting --> last call ----------> closing ------------> gone
//!                    everything ends      fences and hooks      who still waits gets  connections
//!                    by itself            report what they have 410
//! ```
//!
//! Nobody who asked something before the end is left without an answer, and what clients still say on their own way out (a fence, a
//! result, a deletion) is heard, for a moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Who is being answered, and until when.
#[derive(Debug, Default)]
pub(crate) struct LastCall {
    answering: TaskTracker,
    /// Requests so far that ask for more than a look.
    changes: AtomicU64,
    reports: CancellationToken,
    closing: CancellationToken,
}

impl LastCall {
    /// Counts a request as being answered, until the guard goes.
    pub(crate) fn answering(&self, method: &Method) -> TaskTrackerToken {
        if *method != Method::GET {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        self.answering.token()
    }

    /// The time of long reports is over: they say what they know.
    pub(crate) fn reports_due(&self) -> impl Future<Output = ()> + Send + use<> {
        self.reports.clone().cancelled_owned()
    }

    /// Everything is answered now.
    pub(crate) fn closing(&self) -> impl Future<Output = ()> + Send + use<> {
        self.closing.clone().cancelled_owned()
    }

    pub(crate) fn close(&self) {
        self.reports.cancel();
        self.closing.cancel();
    }

    /// Waits until everything is answered; reports that are not there at `reports` are called in, the rest at `end`.
    pub(crate) async fn answered(&self, reports: Instant, end: Instant) {
        self.answering.close();
        if tokio::time::timeout_at(reports, self.answering.wait())
            .await
            .is_err()
        {
            self.reports.cancel();
            let _ = tokio::time::timeout_at(end, self.answering.wait()).await;
        }
    }

    /// Waits until nobody has asked for anything for a while.
    pub(crate) async fn quiet(&self, period: Duration) {
        loop {
            let before = self.changes.load(Ordering::Relaxed);
            tokio::time::sleep(period).await;
            self.answering.wait().await;
            if self.changes.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}
