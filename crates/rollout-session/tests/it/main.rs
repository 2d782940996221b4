//! Sessions from the outside: replies in, samples out.

#![expect(
    clippy::unwrap_used,
    reason = "in the functions that tests share a panic is a failed test"
)]

mod agent;
mod codec;
mod conversation;
mod dice;
mod golden;
mod interleavings;
mod json;
mod line;
mod matcher;
mod pick;
mod properties;
mod python;
mod replay;
mod reply;
mod stored;
mod support;
