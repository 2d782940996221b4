//! Standard output: data, and nothing else.
//!
//! A reader that has seen enough closes its end (`... | head`). That is no error of ours: the rest is not wanted.

use std::{
    fmt::Display,
    io::{ErrorKind, Write},
};

use anyhow::Context;

/// Writes a line.
pub(super) fn line(text: impl Display) -> anyhow::Result<()> {
    text_as_it_is(format_args!("{text}\n"))
}

/// Writes a text without a line break of ours.
pub(super) fn text_as_it_is(text: impl Display) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    match write!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("write to standard output"),
    }
}
