//! The order to abort agents, and what their hooks reported.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::auth::Holder;
use crate::flights::Scope;
use crate::id::HexId;

/// One abort of one job: every launcher gets it once for each of its sessions, with the same id.
#[derive(Debug)]
pub(crate) struct AbortOrder {
    pub(crate) id: HexId,
    pub(crate) reason: String,
    pub(crate) timeout_seconds: f64,
    pub(crate) drain_seconds: Option<f64>,
    pub(crate) args: Option<Box<RawValue>>,
    reports: Mutex<HashMap<Holder, HookReport>>,
    delivered: Mutex<HashSet<HexId>>,
}

/// A session whose launcher has an order: the pod that held it then, whatever became of the session since.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) session: HexId,
    pub(crate) scope: Scope,
    pub(crate) holder: Holder,
    pub(crate) order: Arc<AbortOrder>,
}

/// How a hook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HookResult {
    Succeeded,
    None,
    Failed,
    TimedOut,
}

/// What a launcher says about the hook of its process.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct HookReport {
    pub(crate) abort_id: String,
    pub(crate) result: HookResult,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

impl AbortOrder {
    pub(crate) fn new(
        reason: String,
        timeout_seconds: f64,
        drain_seconds: Option<f64>,
        args: Option<Box<RawValue>>,
    ) -> Self {
        Self {
            id: HexId::random(),
            reason,
            timeout_seconds,
            drain_seconds,
            args,
            reports: Mutex::default(),
            delivered: Mutex::default(),
        }
    }

    /// Notes that a session's launcher is told now. Answers whether it is the first time.
    pub(crate) fn deliver(&self, session: HexId) -> bool {
        self.delivered.lock().insert(session)
    }

    /// Keeps the first report of a process.
    pub(crate) fn report(&self, holder: Holder, report: HookReport) {
        if report.abort_id == self.id.as_str() {
            self.reports.lock().entry(holder).or_insert(report);
        }
    }

    pub(crate) fn report_of(&self, holder: &Holder) -> Option<HookReport> {
        self.reports.lock().get(holder).cloned()
    }
}
