//! Aborts whose hooks run in several host processes: one report for all of them, the worst. Pure.

use std::collections::{HashMap, HashSet};

use crate::wire::{AbortDone, HookResult};

/// The aborts that wait for hooks.
#[derive(Debug, Default)]
pub(super) struct Aborts {
    pending: HashMap<String, Pending>,
}

#[derive(Debug)]
struct Pending {
    hosts: HashSet<u64>,
    report: AbortDone,
}

impl Aborts {
    /// The hook was started in these hosts. Gives the report at once when there are none.
    pub(super) fn begin(&mut self, abort_id: &str, hosts: HashSet<u64>) -> Option<AbortDone> {
        let report = AbortDone {
            abort_id: abort_id.to_owned(),
            result: HookResult::None,
            error: None,
        };
        if hosts.is_empty() {
            return Some(report);
        }
        self.pending
            .insert(abort_id.to_owned(), Pending { hosts, report });
        None
    }

    /// A hook ended. Gives the report when it was the last one.
    pub(super) fn done(&mut self, host: u64, done: &AbortDone) -> Option<AbortDone> {
        let pending = self.pending.get_mut(&done.abort_id)?;
        if !pending.hosts.remove(&host) {
            return None;
        }
        if badness(done.result) >= badness(pending.report.result) {
            pending.report = done.clone();
        }
        if !pending.hosts.is_empty() {
            return None;
        }
        self.pending
            .remove(&done.abort_id)
            .map(|pending| pending.report)
    }

    /// A host died: its hooks have failed. Gives the reports that it held up.
    pub(super) fn host_died(&mut self, host: u64, how: &str) -> Vec<AbortDone> {
        let ids: Vec<String> = self.pending.keys().cloned().collect();
        let failed = |abort_id| AbortDone {
            abort_id,
            result: HookResult::Failed,
            error: Some(how.to_owned()),
        };
        ids.into_iter()
            .filter_map(|abort_id| self.done(host, &failed(abort_id)))
            .collect()
    }

    /// Nobody waits any more.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
    }
}

fn badness(result: HookResult) -> u8 {
    match result {
        HookResult::None => 0,
        HookResult::Succeeded => 1,
        HookResult::Failed => 2,
        HookResult::TimedOut => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(result: HookResult) -> AbortDone {
        AbortDone {
            abort_id: "a".to_owned(),
            result,
            error: None,
        }
    }

    #[test]
    fn without_hosts_there_is_no_hook() {
        assert_eq!(
            Aborts::default().begin("a", HashSet::new()),
            Some(done(HookResult::None))
        );
    }

    #[test]
    fn the_report_is_the_worst_of_all_hosts_and_comes_once() {
        let mut aborts = Aborts::default();
        assert_eq!(aborts.begin("a", HashSet::from([1, 2])), None);
        assert_eq!(aborts.done(1, &done(HookResult::TimedOut)), None);
        assert_eq!(aborts.done(1, &done(HookResult::Succeeded)), None);
        assert_eq!(
            aborts.done(2, &done(HookResult::Succeeded)),
            Some(done(HookResult::TimedOut))
        );
        assert_eq!(aborts.done(2, &done(HookResult::Succeeded)), None);
    }

    #[test]
    fn a_host_that_dies_fails_its_hooks() {
        let mut aborts = Aborts::default();
        aborts.begin("a", HashSet::from([1]));
        let reports = aborts.host_died(1, "killed");
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0].result, HookResult::Failed);
        assert_eq!(reports[0].error.as_deref(), Some("killed"));
        assert!(aborts.host_died(1, "killed").is_empty());
    }
}
