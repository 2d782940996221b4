//! The client against small servers on loopback sockets, and the wire types against replies of SGLang 0.5.23.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod calls;
mod wire;
