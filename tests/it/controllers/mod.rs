//! What the controllers decide, without a cluster. What the API server makes of it is in `tests/cluster/runtime`.

mod backoff;
mod conditions;
mod decision;
mod election;
mod frame;
mod metrics;
mod ownership;
mod pool_status;
mod prune;
mod queue;
mod telling;
