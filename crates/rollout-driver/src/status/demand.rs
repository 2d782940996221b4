//! Demand for agent pods, copied from the router: whoever starts pods asks the driver only.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Board;
use crate::router::RouterClient;

/// Between two questions.
const PERIOD: Duration = Duration::from_secs(1);

/// Questions in a row without an answer after which the demand is not known any more.
const FORGET: u32 = 3;

/// What the router says about a job's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Demand {
    /// Sessions that no pod has.
    pub waiting: u64,
    /// Sessions that pods have.
    pub assigned: u64,
    /// Pods that wait for a session.
    pub idle_claims: u64,
    /// There will be no more work.
    pub closed: bool,
}

/// Keeps the board's demand up to date until it is dropped.
pub(crate) async fn watch(router: RouterClient, board: Board) {
    let mut silent = 0;
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match router.demand().await {
            Ok(demand) => {
                silent = 0;
                board.set_demand(Some(demand));
            }
            Err(error) => {
                tracing::debug!(%error, "the router does not say its demand");
                silent += 1;
                if silent >= FORGET {
                    board.set_demand(None);
                }
            }
        }
    }
}
