//! Runs the abort hook once per abort, however many sessions of this pod the abort ends.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};
use tokio_util::task::TaskTracker;

use super::link::Link;
use crate::wire::{Abort, AbortDone, HookResult, seconds};

/// Time beyond the hook's own that its report may take.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Aborts whose reports are kept.
const MAX_ABORTS: usize = 64;

/// The hooks that run and ran.
#[derive(Debug)]
pub(super) struct Hooks {
    link: Link,
    tasks: TaskTracker,
    reports: Mutex<HashMap<String, watch::Receiver<Option<AbortDone>>>>,
}

impl Hooks {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            tasks: TaskTracker::new(),
            reports: Mutex::default(),
        }
    }

    /// Runs the hook for this abort unless it did already. The receiver gives the report.
    pub(super) fn run(&self, abort: Abort) -> watch::Receiver<Option<AbortDone>> {
        let mut reports = self.reports.lock();
        if let Some(report) = reports.get(&abort.abort_id) {
            return report.clone();
        }
        if reports.len() >= MAX_ABORTS {
            reports.retain(|_, report| report.borrow().is_none());
        }
        let (sender, receiver) = watch::channel(None);
        reports.insert(abort.abort_id.clone(), receiver.clone());
        let link = self.link.clone();
        self.tasks.spawn(async move {
            sender.send_replace(Some(report(&link, abort).await));
        });
        receiver
    }
}

async fn report(link: &Link, abort: Abort) -> AbortDone {
    let abort_id = abort.abort_id.clone();
    let limit = seconds(abort.timeout_seconds) + REPORT_TIMEOUT;
    let failed = |result, error: &str| AbortDone {
        abort_id: abort_id.clone(),
        result,
        error: Some(error.to_owned()),
    };
    match timeout(limit, link.abort(abort)).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => failed(HookResult::Failed, "the launcher lost the hook"),
        Err(_) => failed(
            HookResult::TimedOut,
            "the hook's process did not answer in time",
        ),
    }
}
