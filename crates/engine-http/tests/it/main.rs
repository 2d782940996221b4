//! Connections to real TLS servers, and to some that are none.

mod authority;
mod handshakes;
mod trust;
