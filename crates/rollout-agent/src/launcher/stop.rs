//! How the time of a pod that is told to end is spent: everything fits in half of it.

use std::time::Duration;

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
        Self {
            hook: half / 2,
            post: half / 4,
            shim: half / 4,
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
}
