//! The router in front of simulated engines.

#![expect(
    clippy::unwrap_used,
    reason = "in the functions that tests share a panic is a failed test"
)]

mod lifecycle;
mod support;
