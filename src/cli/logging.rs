//! Logs: standard error, filtered by `ROLLOUT_LOG` (a level, or `target=level,...`), as lines or with `ROLLOUT_LOG_FORMAT=json` as JSON.
//!
//! Ids and tokens leave this process in their short form only, wherever in an event they stand: in a field, in the text of an error, in
//! the address that a library logs.

use std::io::{self, IsTerminal, Write};

use rollout_session::with_short_ids;
use tracing_subscriber::EnvFilter;

/// Sets up logging for this process. `level` holds when `ROLLOUT_LOG` is not set.
pub(super) fn init(level: &str) {
    let filter = EnvFilter::try_from_env("ROLLOUT_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| ShortIds(io::stderr()));
    let done = if std::env::var("ROLLOUT_LOG_FORMAT").is_ok_and(|format| format == "json") {
        builder.json().try_init()
    } else {
        builder.with_ansi(io::stderr().is_terminal()).try_init()
    };
    // A second subscriber is refused: that is a test, which has its own.
    drop(done);
}

/// Writes events, each of which comes as one piece, with ids in their short form.
struct ShortIds<W>(W);

impl<W: Write> Write for ShortIds<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(event) {
            Ok(text) => self.0.write_all(with_short_ids(text).as_bytes())?,
            Err(_) => self.0.write_all(event)?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
