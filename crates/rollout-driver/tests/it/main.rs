//! The driver against the real router and the simulated engine, in one process, over loopback sockets.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on says so"
)]

mod agentic;
mod agents;
mod faults;
mod plugins;
mod restarts;
mod rig;
mod single_turn;
