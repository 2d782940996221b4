//! The router in front of simulated engines.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in the functions that tests share a panic is a failed test"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "bodies are written where they are used"
)]

mod abort;
mod agent_abort;
// A CA and servers for the tests of both crates.
#[expect(dead_code, reason = "these tests need less of it")]
#[path = "../../../engine-http/tests/it/authority.rs"]
mod authority;
mod both_engines;
mod claims;
// The same chance as in the tests of sessions.
#[path = "../../../rollout-session/tests/it/dice.rs"]
mod dice;
mod disconnect;
mod discovery;
mod encryption;
mod engine_faults;
mod faults;
mod fence;
mod incremental;
mod journal;
mod leave;
mod lifecycle;
mod limits;
mod metrics;
mod passthrough;
mod pods;
mod recording;
mod requests;
mod retry;
mod security;
mod server;
mod silence;
mod states;
mod stop;
mod storm;
mod stream;
mod support;
mod workers;
