//! Connections to real TLS servers, and to some that are none.

#![expect(
    clippy::unwrap_used,
    reason = "in the functions that tests share a panic is a failed test"
)]

mod authority;
mod handshakes;
mod trust;
