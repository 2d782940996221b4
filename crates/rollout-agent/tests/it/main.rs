//! Launcher, shim and Python host as real processes, before a router of the test's own.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test"
)]

mod cancel;
mod command;
mod crash;
mod function;
mod hook;
mod http_client;
mod plugins;
mod pod;
mod process;
mod real_router;
mod router;
