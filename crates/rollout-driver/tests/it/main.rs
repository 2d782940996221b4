//! The driver against the real router and the simulated engine, in one process, over loopback sockets.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on says so"
)]

mod agentic;
mod agents;
mod configuration;
mod data_by_url;
mod faults;
mod ledger;
mod outputs;
mod plugin_jobs;
mod plugins;
mod restarts;
mod rig;
mod sampling;
mod single_turn;
mod status;
