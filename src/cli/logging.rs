//! Logs: standard error, filtered by `ROLLOUT_LOG` (a level, or `target=level,...`), as lines or with `ROLLOUT_LOG_FORMAT=json` as JSON.
//!
//! Ids and tokens leave this process in their short form only, wherever in an event they stand: in a field, in the text of an error, in
//! the address that a library logs. Text of others is made safe for a terminal ([`super::printable`]); in JSON it is escaped already.

use std::io::{self, IsTerminal, Write};

use rollout_session::with_short_ids;
use tracing_subscriber::EnvFilter;

use super::printable::printable_log;

/// Sets up logging for this process. `level` holds when `ROLLOUT_LOG` is not set.
pub(super) fn init(level: &str) {
    let filter = EnvFilter::try_from_env("ROLLOUT_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    let done = if std::env::var("ROLLOUT_LOG_FORMAT").is_ok_and(|format| format == "json") {
        let writer = || Events(io::stderr(), Form::Json);
        builder.json().with_writer(writer).try_init()
    } else {
        let writer = || Events(io::stderr(), Form::Lines);
        let colored = io::stderr().is_terminal();
        builder.with_ansi(colored).with_writer(writer).try_init()
    };
    // A second subscriber is refused: that is a test, which has its own.
    drop(done);
}

/// How events are written.
#[derive(Clone, Copy)]
enum Form {
    Lines,
    Json,
}

/// Writes events, each of which comes as one piece, with ids in their short form.
struct Events<W>(W, Form);

impl<W: Write> Write for Events<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let text = with_short_ids(&text);
        match self.1 {
            Form::Lines => self.0.write_all(printable_log(&text).as_bytes())?,
            Form::Json => self.0.write_all(text.as_bytes())?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
