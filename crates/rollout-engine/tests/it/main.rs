//! Tests of the batch loop.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on says so"
)]

mod batch_loop;
mod ladder;
mod properties;
mod rig;
