//! How the time of a pod that is told to end is spent: everything fits in half of it.

use std::time::Duration;

/// Most of the time that is kept for what follows the hook; the rest is the hook's.
const AFTER_HOOK: Duration = Duration::from_secs(4);

/// The parts of half the pod's grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StopPlan {
    /// Longest time for the hook.
    pub(super) hook: Duration,
    /// Longest time for the results.
    pub(super) post: Duration,
    /// Longest time for the shim to end.
    pub(super) shim: Duration,
}

impl StopPlan {
    /// The plan for a pod's grace period; `cancel` is the time that a cancelled agent gets.
    pub(super) fn new(grace_period: Duration, cancel: Duration) -> Self {
        let half = (grace_period / 2).saturating_sub(cancel);
        let after = AFTER_HOOK.min(half / 2);
        Self {
            hook: half.saturating_sub(after),
            post: after / 2,
            shim: after / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_fits_in_half_the_grace_period() {
        for grace in [0, 1, 10, 30, 600].map(Duration::from_secs) {
            let cancel = Duration::from_millis(500);
            let plan = StopPlan::new(grace, cancel);
            assert!(plan.hook + plan.post + plan.shim <= grace / 2);
        }
    }

    #[test]
    fn a_pod_whose_half_grace_period_is_five_seconds_longer_than_its_hook_has_the_whole_hook() {
        let plan = |grace| {
            let cancel = Duration::from_millis(500);
            StopPlan::new(Duration::from_secs(grace), cancel)
        };
        for hook in [10, 30, 600] {
            assert!(plan(2 * (hook + 5)).hook >= Duration::from_secs(hook));
        }
        // A short one is shared.
        let short = plan(5);
        assert_eq!(short.hook, Duration::from_secs(1));
        assert_eq!(short.post, Duration::from_millis(500));
    }
}
