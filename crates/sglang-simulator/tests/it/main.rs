//! Behaviour of the simulated engine, as a client sees it.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod basics;
mod crowd;
mod faults;
mod latency;
mod mutations;
mod profiles;
mod replay;
mod replies;
mod robustness;
mod sampling;
mod serving;
mod support;
mod validators;
mod weights;
