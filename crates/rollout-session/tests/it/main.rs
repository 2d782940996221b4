//! Sessions from the outside: replies in, samples out.

#![expect(
    clippy::unwrap_used,
    reason = "in the functions that tests share a panic is a failed test"
)]

mod codec;
mod golden;
mod json;
mod line;
mod properties;
mod reply;
mod support;
