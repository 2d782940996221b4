//! The router in front of simulated engines.

#![expect(
    clippy::unwrap_used,
    reason = "in the functions that tests share a panic is a failed test"
)]

mod agent_abort;
mod claims;
mod disconnect;
mod faults;
mod fence;
mod lifecycle;
mod limits;
mod metrics;
mod passthrough;
mod recording;
mod requests;
mod retry;
mod security;
mod server;
mod stream;
mod support;
