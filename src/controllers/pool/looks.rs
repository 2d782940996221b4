//! The beat of the tasks that ask engines and their sidecars for a pool.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(5);

/// One look after another, the first at once, as long as somebody wants them.
pub(super) struct Looks<F> {
    ticks: Interval,
    is_there: F,
}

impl<F: Fn() -> bool> Looks<F> {
    pub(super) fn new(is_there: F) -> Self {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, is_there }
    }

    /// Waits for the next look; answers whether it is still wanted.
    pub(super) async fn go_on(&mut self) -> bool {
        self.ticks.tick().await;
        (self.is_there)()
    }
}
