//! Behaviour of the simulated engine, as a client sees it.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

mod basics;
mod faults;
mod latency;
mod profiles;
mod replay;
mod replies;
mod robustness;
mod serving;
mod support;
mod weights;
